"""Unmodified scripts that use AOTInductor: their packages are replaced by instrumented ones while they run."""
