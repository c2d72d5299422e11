"""Names of what the driver gives as numbers."""

from __future__ import annotations

# Bit by bit, from the lowest: why clocks are below what was asked for. gpu_idle is no harm.
THROTTLE_REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
    "board_limit",
    "reliability",
)
OTHER = "other"

COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")

# What the XIDs of NVIDIA's list mean that are about the card or its memory, for a person at night.
XIDS = {
    13: "graphics engine exception, mostly the application's",
    31: "memory page fault, mostly the application's",
    43: "reset of a stopped channel, mostly the application's",
    45: "work removed after another error",
    48: "double-bit ECC error",
    61: "internal microcontroller halt",
    62: "internal microcontroller halt",
    63: "row remapping or page retirement recorded",
    64: "row remapping or page retirement failed",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained memory error",
    95: "uncontained memory error: reset the GPU",
    119: "the GPU's system processor does not answer",
    120: "error of the GPU's system processor",
}


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """Return the names of the bits in ``mask``; bits without a name are ``other`` together."""
    names = [name for bit, name in enumerate(THROTTLE_REASONS) if mask >> bit & 1]
    return tuple([*names, OTHER] if mask >> len(THROTTLE_REASONS) else names)


def compute_mode(number: int) -> str:
    """Return the compute mode's name."""
    return COMPUTE_MODES[number] if 0 <= number < len(COMPUTE_MODES) else OTHER
