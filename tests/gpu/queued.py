"""Hosts in which a launch fails: `python -c SCRIPT PROGRAM PACKAGE BAD_INPUTS`."""

# One good call; then the device is kept busy while all launches of a bad call are queued behind the fault; then abort.
QUEUED = """
import os, sys, torch
from tests.gpu import cuda_models
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

# A burst: a thousand good calls in a row, then a bad one and good ones behind it; then abort.
BURST = """
import os, sys, torch
from tests.gpu import cuda_models
good, _ = torch.export.load(sys.argv[1]).example_inputs
loader = torch._C._aoti.AOTIModelPackageLoader(sys.argv[2], "model", False, 1, -1)
bad = torch.load(sys.argv[3])
try:
    for call in range(1010):
        loader.boxed_run(list(bad if call == 1000 else good))
    torch.cuda.synchronize()
except Exception:
    os.abort()
"""
