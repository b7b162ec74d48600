# Sourced by the scripts beside it: finds Python, and makes one virtual environment for each version of it.

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# runs COMMAND: is it a Python of at least 3.11 that can make environments?
is_python() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# The Python of that version, as `3.12`: on the PATH, or one of pyenv's; nothing if there is none.
python_of_version() {
    local candidate pyenv
    pyenv=$(command -v pyenv) && pyenv=$(dirname "$pyenv")/..
    for candidate in "python$1" python3 python \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python "${pyenv:-.}"/versions/"$1".*/bin/python; do
        if is_python "$candidate" && [ "$(version_of "$candidate")" = "$1" ]; then
            command -v "$candidate"
            return
        fi
    done
}

# The first Python that will do; 3.11 before all others.
any_python() {
    local version found
    for version in 3.11 3.12 3.13 3.14; do
        found=$(python_of_version "$version")
        if [ -n "$found" ]; then
            echo "$found"
            return
        fi
    done
    echo "no Python of at least 3.11 with venv and ensurepip was found" >&2
    return 1
}

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'
}

# The Python of an environment with everything that setup.cfg asks for; pip runs only when that has changed.
python_with_everything() {
    local version folder requirements stamp
    version=$(version_of "$1")
    folder="$checkout/.venv/$version"
    requirements=$("$1" "$checkout/scripts/requirements.py") || return 1
    # The stamp holds the folder too: an environment does not survive being moved.
    stamp="$folder
$requirements
$(cat "$checkout/scripts/constraints.txt")"
    if [ ! -x "$folder/bin/python" ] || [ "$(cat "$folder/installed" 2>/dev/null)" != "$stamp" ]; then
        echo "making an environment for Python $version" >&2
        "$1" -m venv --clear "$folder" >&2 || return 1
        # shellcheck disable=SC2086  # one word for each requirement
        "$folder/bin/python" -m pip install --quiet -c "$checkout/scripts/constraints.txt" $requirements >&2 || return 1
        echo "$stamp" >"$folder/installed"
    fi
    echo "$folder/bin/python"
}

# The Python of an environment with jax, triton, numpy and JAX's plugin for CUDA, and nothing else: where the stand-in
# driver runs. NVIDIA's own libraries, which it replaces, are left out.
python_on_standin() {
    local folder="$checkout/.venv/standin" pip
    if [ "$(cat "$folder/installed" 2>/dev/null)" != "$folder $(cat "$checkout/scripts/constraints.txt")" ]; then
        echo "making an environment for the stand-in driver" >&2
        "$1" -m venv --clear "$folder" >&2 || return 1
        pip="$folder/bin/python -m pip install --quiet -c $checkout/scripts/constraints.txt"
        $pip jax triton numpy >&2 || return 1
        # the plugin is of jax's own version
        $pip --no-deps $("$folder/bin/python" -c 'import jax
print(*(f"{name}=={jax.__version__}" for name in ("jax-cuda13-plugin", "jax-cuda13-pjrt")))') >&2 || return 1
        echo "$folder $(cat "$checkout/scripts/constraints.txt")" >"$folder/installed"
    fi
    echo "$folder/bin/python"
}
