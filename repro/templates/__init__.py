"""Replays one recorded launch alone. Copied into every repro; needs only torch, safetensors and numpy."""

from .memory import LaunchArgument, Result, Storage
from .process import main

__all__ = ["LaunchArgument", "Result", "Storage", "main"]
