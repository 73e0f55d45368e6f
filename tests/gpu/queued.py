"""A host far ahead of its device when a launch fails: `python -c QUEUED PROGRAM PACKAGE BAD_INPUTS`.

One good call; then the device is kept busy while all launches of a bad call are queued behind the fault; then abort.
"""

QUEUED = """
import os, sys, torch, cuda_models
good, _ = torch.export.load(sys.argv[1]).example_inputs
model = torch._inductor.aoti_load_package(sys.argv[2])
bad = torch.load(sys.argv[3])
model(*good)
torch.cuda.synchronize()
torch.cuda._sleep(2_000_000_000)
model(*bad)
try:
    torch.cuda.synchronize()
except Exception:
    os.abort()
"""
