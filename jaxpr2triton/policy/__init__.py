"""Every number that decides something about kernels, or about what is said of them: here and nowhere else."""

from jaxpr2triton.policy.common import COMMON, Common
from jaxpr2triton.policy.machines import DEFAULT_POLICY, Cutting, Grouping, Policy, Splitting, policy_of

__all__ = ["COMMON", "DEFAULT_POLICY", "Common", "Cutting", "Grouping", "Policy", "Splitting", "policy_of"]
