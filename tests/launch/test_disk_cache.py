"""Compiled kernels on disk: found again by other processes, and never in the way when the folder is useless."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from handmade import SOFTMAX, add_kernel

from jaxpr2triton.errors import CacheWarning
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch import compile as compile_module
from jaxpr2triton.launch.compile import Binary, compile_kernel
from jaxpr2triton.launch.triton_door import TRITON_SIDE
