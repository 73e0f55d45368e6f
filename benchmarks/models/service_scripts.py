"""Scripts of other kinds: services, training, processes; each with a fault to plant.

They call `torch.compile` with graph breaks and gradients, catch what a model raises, fork, lose a worker of a pool, and
hang.
"""

from __future__ import annotations

from benchmarks.models.public_scripts import PublicScript

SERVICE = PublicScript(
    "service_with_graph_breaks",
    """
import torch

class Service:
    def __init__(self):
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8)).eval()
        self.seen = 0

    @torch.compile
    def predict(self, x):
        hidden = self.net(x)
        self.seen += 1
        print("batch of", x.shape[0], "mean", round(float(hidden.mean()), 4))  # a graph break
        mask = hidden > 5
        average = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
        return average * 2

service = Service()
with torch.no_grad():
    for _ in range(3):
        out = service.predict(torch.randn(4, 8))
print("finite:", torch.isfinite(out).all().item(), "seen", service.seen)
""",
    "        average = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)",
    "        average = (hidden * mask).sum(1) / mask.sum(1)",
    operator="div",
    torch_compile=True,
)

TRAINING = PublicScript(
    "training_step",
    """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 12)
        self.second = nn.Linear(12, 3)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        length = hidden.pow(2).sum(-1).add(1e-6).sqrt()
        return self.second(hidden), length

torch.manual_seed(0)
net = Net()
with torch.no_grad():
    net.first.bias.fill_(0.0)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

@torch.compile
def step(x, target):
    out, length = net(x)
    return nn.functional.cross_entropy(out, target) + 0.01 * length.mean()

x, target = torch.randn(8, 6), torch.randint(0, 3, (8,))
x[3] = 0
for epoch in range(3):
    optimizer.zero_grad()
    loss = step(x, target)
    loss.backward()
    optimizer.step()
    print(epoch, round(loss.item(), 4))
""",
    "        length = hidden.pow(2).sum(-1).add(1e-6).sqrt()",
    "        length = hidden.pow(2).sum(-1).sqrt()",
    operator="div",
    torch_compile=True,
)

HTTP = PublicScript(
    "http_server_that_catches",
    """
import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch

class Ranker(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(50, 16)
        self.head = torch.nn.Linear(16, 3)

    def forward(self, ids):
        hidden = self.words(ids).mean(1)
        return self.head(hidden).softmax(-1)

torch.manual_seed(0)
with torch.no_grad():
    program = torch.export.export(Ranker().eval(), (torch.zeros(1, 4, dtype=torch.long),))
model = torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(program))

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        words = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            answer, status = {"p": [round(v, 4) for v in model(torch.tensor([words]))[0].tolist()]}, 200
        except Exception as error:
            answer, status = {"error": type(error).__name__}, 500
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
answers = {}

def ask(number, words):
    request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}/", data=json.dumps(words).encode())
    try:
        with urllib.request.urlopen(request) as reply:
            answers[number] = (reply.status, json.loads(reply.read()))
    except urllib.error.HTTPError as error:
        answers[number] = (error.code, json.loads(error.read()))

REQUESTS = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 49, 1, 2], [3, 3, 3, 3], [49, 0, 1, 2]]
threads = [threading.Thread(target=ask, args=item) for item in enumerate(REQUESTS)]
[t.start() for t in threads]
[t.join() for t in threads]
for number in sorted(answers):
    print(number, *answers[number])
server.shutdown()
""",
    "REQUESTS = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 49, 1, 2], [3, 3, 3, 3], [49, 0, 1, 2]]",
    "REQUESTS = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 50, 1, 2], [3, 3, 3, 3], [49, 0, 1, 2]]",
    operator="embedding",
    line="hidden = self.words(ids).mean(1)",
    kind="fault",
)

FORKED = PublicScript(
    "forked_processes",
    """
import multiprocessing
import os

import torch

class Model(torch.nn.Module):
    def forward(self, x, n):
        weights = (x * n - (x * n).amax()).exp()
        return (weights / weights.sum(-1, keepdim=True)) @ x

def child(model, n, queue):
    queue.put((n, model(torch.ones(5), torch.tensor(float(n))).item()))
    queue.close()
    queue.join_thread()
    os._exit(0)

if __name__ == "__main__":
    program = torch.export.export(Model(), (torch.ones(5), torch.tensor(1.0)))
    model = torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(program))
    print(model(torch.ones(5), torch.tensor(1.0)).item())
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=child, args=(model, n, queue)) for n in (1, 2, 100)]
    [c.start() for c in children]
    results = sorted(queue.get() for _ in children)
    [c.join() for c in children]
    print(results, [c.exitcode for c in children])
""",
    "        weights = (x * n - (x * n).amax()).exp()",
    "        weights = (x * n).exp()",
    operator="exp",
)

POOL = PublicScript(
    "pool_of_workers",
    """
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import torch

class Gather(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(64, dtype=torch.float32))

    def forward(self, index):
        rows = self.table[index]
        return rows.sqrt().sum()

_model = None

def start(path):
    global _model
    _model = torch._inductor.aoti_load_package(path)

def work(index):
    return _model(torch.tensor(index)).item()

if __name__ == "__main__":
    with torch.no_grad():
        program = torch.export.export(Gather(), (torch.zeros(3, dtype=torch.long),))
    path = torch._inductor.aoti_compile_and_package(
        program, package_path="gather.pt2", inductor_configs={"assert_indirect_indexing": False})
    jobs = [[0, 1, 2], [3, 4, 5], [6, 62, 7], [8, 9, 10]]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=start, initargs=(path,)) as pool:
        futures = [pool.submit(work, job) for job in jobs]
        for future in futures:
            try:
                print(round(future.result(), 3))
            except BrokenProcessPool:
                print("a worker died")
                sys.exit(7)
""",
    "    jobs = [[0, 1, 2], [3, 4, 5], [6, 62, 7], [8, 9, 10]]",
    "    jobs = [[0, 1, 2], [3, 4, 5], [6, 1 << 40, 7], [8, 9, 10]]",
    operator="index",
    line="rows = self.table[index]",
    kind="fault",
)

SOLVER = PublicScript(
    "solver_that_never_ends",
    """
import torch

@torch.library.custom_op("solver::root", mutates_args=())
def root(x: torch.Tensor) -> torch.Tensor:
    guess = x.clone()
    while not (guess * guess - x).abs().max() < 1e-3:  # Newton's method
        guess = (guess + x / guess) / 2
    return guess

@root.register_fake
def _(x):
    return torch.empty_like(x)

class Model(torch.nn.Module):
    def forward(self, x):
        energy = (x * x).sum(-1)
        length = torch.ops.solver.root(energy)
        return x / length.unsqueeze(-1)

program = torch.export.export(Model(), (torch.ones(3, 4),))
model = torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(program))
rows = torch.arange(1.0, 13.0).reshape(3, 4)
for step in range(4):
    print(step, round(model(rows).sum().item(), 4), flush=True)
    rows[step % 3] += 1.0
""",
    "    rows[step % 3] += 1.0",
    "    rows[step % 3] *= step - 1.0",
    operator="solver::root",
    line="length = torch.ops.solver.root(energy)",
    kind="hang",
)

SCRIPTS = (SERVICE, TRAINING, HTTP, FORKED, POOL, SOLVER)
