"""Many machines through Ray: workers on the adapters of a cluster, and rows that are dealt out to them.

Ray is an optional extra, and this is the only module that imports it. Every node needs this package and Ray. A node
says how many adapters it offers with `ray start --resources='{"webgpu": 1}'`.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from .assets import beside, folders
from .console import outfile
from .errors import DeviceError, RunError, UsageError
from .formats.pte import Program
from .gpu import adapters
from .llm import batch
from .llm import tokenizer as tokenizers
from .llm.language_model import LLM
from .llm.many import Many
from .llm.request import Request
from .version import __version__

RESOURCE = "webgpu"
RESTARTS = 3  # of a worker whose process dies; Ray repeats what it was doing
MOST_ROWS = 8  # in a block, if a worker runs one prompt at a time
ROUNDS = 4  # most rows in a block for each prompt that a worker runs at a time, if these are several
BLOCKS = 4  # for each worker at least, so that the last ones end at about the same time
LOOK_SECONDS = 1.0  # between two looks at which nodes are alive

Files = Mapping[str, np.ndarray[Any, Any]]  # path in a folder -> bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker is."""

    node: str  # Ray's id of the node
    name: str  # for people
    adapter: str

    def __str__(self) -> str:
        return f"{self.name}, {self.adapter}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker returns: its place, and a result or an error. Errors are data, so that they need no pickling."""

    place: Place
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class ReplyWork:
    """Everything that the replies to many prompts depend on, besides the files."""

    requests: Sequence[Request]
    options: Mapping[str, Any]
    seed: int
    chat: bool
    system: str | None
    parallel: int | None  # prompts at a time on each worker; None: as many as memory and speed suggest
    model: dict[str, Any]  # arguments of LLM, whose paths are in the folder of the files


def collect_files(
    program: Program, tokenizer: str | None = None, template: str | None = None
) -> tuple[Files, dict[str, Any]]:
    """The files of a model as arrays, and the arguments of LLM that name them."""
    model = Path(program.path)
    found: dict[str, Path] = {model.name: model}
    data = {Path(span.source.name) for span in chain(program.segments, program.constants, program.named.values())}
    found |= {f"data/{path.name}": path for path in data if path.is_file() and path.resolve() != model.resolve()}
    given: dict[str, Any] = {"path": model.name, "data": [name for name in found if name.startswith("data/")]}
    names = (*tokenizers.NAMES, *tokenizers.CONFIGS, "chat_template.jinja")
    if tokenizer and os.path.isfile(tokenizer):
        found |= {f"tokenizer/{path.name}": path for name in names[3:] if (path := beside(tokenizer, name))}
        given["tokenizer"] = f"tokenizer/{Path(tokenizer).name}"
        found[given["tokenizer"]] = Path(tokenizer)
    else:
        given["tokenizer"] = "tokenizer" if tokenizer else None
        places = [Path(tokenizer)] if tokenizer else folders(model)
        own = (f"{model.stem}.tokenizer.json", f"{model.stem}_tokenizer.json")
        for place in reversed(places):
            paths = [*(place / name for name in (*names, *own)), *place.glob("*.tiktoken")]
            found |= {("tokenizer/" if tokenizer else "") + path.name: path for path in paths if path.is_file()}
    if template:
        given["template"] = f"template/{Path(template).name}"
        found[given["template"]] = Path(template)
    try:
        return {name: np.fromfile(path, np.uint8) for name, path in found.items()}, given
    except OSError as error:
        raise UsageError(f"cannot read: {str(error.strerror).lower()} ({error.filename})") from None


@contextlib.contextmanager
def unpacked(files: Files) -> Iterator[Path]:
    """A temporary folder with these files."""
    with tempfile.TemporaryDirectory(prefix="webgpu-run-", ignore_cleanup_errors=True) as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            content.tofile(path)
        yield Path(folder)


def block_rows(rows: int, workers: int, parallel: int | None) -> int:
    """Rows in a block for workers that run `parallel` prompts at a time: enough for that, and few enough for all."""
    least = 1 if parallel == 1 else parallel or batch.MOST
    most = MOST_ROWS if parallel == 1 else ROUNDS * least
    share = -(-rows // max(1, workers))
    return max(1, min(share, max(least, min(most, rows // (BLOCKS * max(1, workers))))))


class Dealer:
    """Deals rows out in blocks, and again if the worker that had them is lost. A row counts once."""

    def __init__(self, rows: Sequence[int], workers: int, parallel: int | None = 1) -> None:
        size = block_rows(len(rows), workers, parallel)
        self._waiting = deque(tuple(rows[at : at + size]) for at in range(0, len(rows), size))
        self._held: dict[int, tuple[int, ...]] = {}  # worker -> its block
        self.missing = set(rows)

    def take(self, worker: int) -> tuple[int, ...]:
        """The next block for a worker; empty if there is none."""
        while self._waiting:
            block = tuple(row for row in self._waiting.popleft() if row in self.missing)
            if block:
                self._held[worker] = block
                return block
        return ()

    def done(self, worker: int, rows: Sequence[int]) -> list[int]:
        """A worker has done these rows; returns those that no other had done before."""
        self._held.pop(worker, None)
        fresh = [row for row in rows if row in self.missing]
        self.missing.difference_update(fresh)
        return fresh

    def lost(self, worker: int) -> None:
        """The block of a worker goes to another."""
        block = self._held.pop(worker, ())
        if block:
            self._waiting.appendleft(block)


def _tokenized(request: Request, llm: LLM, work: ReplyWork) -> Request:
    """The request as token ids, so that a worker tokenizes all requests once and not for each block."""
    if request.error:
        return request
    try:
        ids = request.tokens(llm, chat=work.chat, system=work.system)
    except DeviceError:
        raise
    except RunError as error:
        return Request(request.id, error=str(error))
    return Request(request.id, ids=ids, options=request.options)


class Worker:
    """What an actor runs: a model on one adapter of its node."""

    def __init__(self, version: str, device: str | None) -> None:
        self._device = device
        self._exit = contextlib.ExitStack()
        self._many: Many | None = None
        self._adapter = ""
        self._error = "" if version == __version__ else f"it has webgpu-run {__version__}, this command {version}"

    def complete(self, shared: Sequence[Any], rows: Sequence[int]) -> Answer:
        """The completions of these rows, as dictionaries. The first call loads the model, also after a restart.

        `shared` are references to the files and to the work, in the object store.
        """
        return self._answer(lambda: self._complete(shared, rows))

    def measure(self, shared: Sequence[Any], options: Mapping[str, Any]) -> Answer:
        """The rows of a benchmark."""
        return self._answer(lambda: self._measure(shared, options))

    def _answer(self, run: Callable[[], Any]) -> Answer:
        result = None
        if not self._error:
            try:
                result = run()
            except RunError as error:
                self._error = str(error)
        import ray

        node = ray.get_runtime_context().get_node_id()
        names = [n.get("NodeName") or n["NodeManagerHostname"] for n in ray.nodes() if n["NodeID"] == node]
        return Answer(Place(node, names[0] if names else node[:8], self._adapter), result, self._error)

    def _choose(self) -> str:
        """The adapter of this worker: one that no other worker on this machine has, if there is one."""
        if self._device:
            return self._device
        found = adapters.list_adapters(gl=False) or adapters.list_adapters()
        best = [a for a in found if (a.backend, a.software) == (found[0].backend, found[0].software)]
        for adapter in best:
            path = Path(tempfile.gettempdir(), f"webgpu-run-adapter-{adapter.index}.lock")
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError:
                continue
            try:
                self._exit.enter_context(outfile.locked(fd))
            except OSError:
                continue  # another worker has it
            finally:
                os.close(fd)
            return str(adapter.index)
        return str(best[0].index) if best else "0"

    def _open(self, files: Files, work: ReplyWork) -> Many:
        device = self._choose()
        with unpacked(files) as folder:
            given = dict(work.model)
            given |= {name: folder / given[name] for name in ("path", "tokenizer", "template") if given.get(name)}
            llm = LLM(**{**given, "data": [folder / name for name in given["data"]]}, device=device)
        self._adapter = llm.model.device.name
        requests = [_tokenized(request, llm, work) for request in work.requests]
        return Many(llm, requests, work.options, seed=work.seed, parallel=work.parallel)

    def _complete(self, shared: Sequence[Any], rows: Sequence[int]) -> list[tuple[int, dict[str, Any]]]:
        if self._many is None:
            import ray

            self._many = self._open(*ray.get(list(shared)))
        return [(index, completion.as_dict()) for index, completion in self._many.run(rows)]

    def _measure(self, shared: Sequence[Any], options: Mapping[str, Any]) -> list[dict[str, Any]]:
        import ray

        from .bench.sweep import run_model

        device = self._choose()
        with (
            unpacked(ray.get(shared[0])) as folder,
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere),
        ):
            out = folder / "rows.jsonl"
            there = {"models": (str(folder / options["models"][0]),), "device": device, "out": str(out)}
            run_model(**{**options, **there, "data": tuple(str(folder / name) for name in options["data"])})
            rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
        self._adapter = rows[0]["device"]["name"]
        return rows


@dataclass(slots=True)
class _Actor:
    """A worker as the driver sees it."""

    handle: Any
    place: Place | None = None
    is_lost: bool = False  # its node is gone; Ray may start it again elsewhere
    error: str = ""


class Cluster:
    """A connection to a Ray cluster. Leaving it ends the workers."""

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError:
            message = "--ray needs the extra webgpu-run[ray], which is not installed"
            raise UsageError(message, hint="pip install 'webgpu-run[ray]'") from None
        # Ray can work without authentication. We ask for it, unless the user has decided otherwise.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        self._ray = ray
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error", configure_logging=False)
        except Exception as error:  # Ray raises many kinds here: no cluster, another version, no token
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = lines[0].partition(". ")[0] if lines else type(error).__name__
            raise UsageError(f"--ray {address}: {reason}", hint="docs/many.md shows how to start a cluster") from None
        self._actors: dict[int, _Actor] = {}
        self._shared: list[Any] = []
        self.counts: Counter[Place] = Counter()  # rows that each worker completed

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._actors.values():
            with contextlib.suppress(Exception):
                self._ray.kill(actor.handle, no_restart=True)
        self._ray.shutdown()

    def start(self, files: Files, work: Any, device: str | None) -> int:
        """Start one worker on each adapter of the cluster; returns how many there are."""
        count = int(self._ray.cluster_resources().get(RESOURCE, 0))
        if not count:
            raise DeviceError(
                f"no node of the cluster offers an adapter (resource {RESOURCE!r})",
                hint=f"""ray start --address=... --resources='{{"{RESOURCE}": 1}}'""",
            )
        limits = {"num_cpus": 0, "resources": {RESOURCE: 1}, "max_restarts": RESTARTS, "max_task_retries": RESTARTS}
        remote = self._ray.remote(**limits)(Worker)
        # Each goes to a node once. References in a list are passed on as they are, to workers that need them.
        self._shared = [self._ray.put(files), self._ray.put(work)]
        self._actors = {i: _Actor(remote.remote(__version__, device)) for i in range(count)}
        return count

    @property
    def ready(self) -> int:
        """How many workers are there."""
        return sum(actor.place is not None and not actor.is_lost for actor in self._actors.values())

    def summary(self) -> list[str]:
        """What each worker did."""
        lost = {actor.place for actor in self._actors.values() if actor.is_lost or actor.error}
        return [f"{place}: {n} rows{', then lost' if place in lost else ''}" for place, n in self.counts.items()]

    def complete(
        self, rows: Sequence[int], parallel: int | None = 1, *, stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """The completions of these rows, as they come. It ends early if `stopped`."""
        dealer = Dealer(rows, len(self._actors), parallel)
        pending = {self._call(i, ()): i for i in self._actors}
        while dealer.missing and not stopped():
            for worker, answer in self._answers(pending):
                if answer is None or answer.error:
                    dealer.lost(worker)
                    continue
                fresh = set(dealer.done(worker, [index for index, _ in answer.result or ()]))
                self.counts[answer.place] += len(fresh)
                yield from ((index, row) for index, row in answer.result or () if index in fresh)
            self._look_for_lost(dealer)
            busy = set(pending.values())
            for i, actor in self._actors.items():
                if i not in busy and not actor.error and (block := dealer.take(i)):
                    pending[self._call(i, block)] = i
            if dealer.missing and all(actor.error or actor.is_lost for actor in self._actors.values()):
                reasons = [actor.error for actor in self._actors.values() if actor.error]
                raise DeviceError(f"no worker is left: {reasons[0] if reasons else 'their nodes are gone'}")

    def measure(self, options: Mapping[str, Any]) -> Iterator[tuple[Place, list[dict[str, Any]]]]:
        """The rows of a benchmark on each adapter. All adapters are measured at the same time."""
        pending = {actor.handle.measure.remote(self._shared, options): i for i, actor in self._actors.items()}
        while pending:
            for worker, answer in self._answers(pending):
                if answer is None or answer.error:
                    place = answer.place if answer else worker
                    raise DeviceError(f"the benchmark on {place} failed: {self._actors[worker].error}")
                yield answer.place, answer.result

    def _call(self, worker: int, rows: Sequence[int]) -> Any:
        return self._actors[worker].handle.complete.remote(self._shared, rows)

    def _answers(self, pending: dict[Any, int]) -> Iterator[tuple[int, Answer | None]]:
        """What has come since the last look; None for a worker that is lost."""
        if not pending:
            time.sleep(LOOK_SECONDS)
            return
        ready, _ = self._ray.wait(list(pending), num_returns=1, timeout=LOOK_SECONDS)
        for ref in ready:
            worker = pending.pop(ref)
            actor = self._actors[worker]
            try:
                answer: Answer = self._ray.get(ref)
            except self._ray.exceptions.ActorUnavailableError:
                actor.is_lost = True
                pending[self._call(worker, ())] = worker  # answers if Ray starts it again
                yield worker, None
                continue
            except self._ray.exceptions.RayError as error:
                actor.error = str(error).strip().splitlines()[0]
                yield worker, None
                continue
            actor.place, actor.error, actor.is_lost = answer.place, answer.error, False
            yield worker, answer

    def _look_for_lost(self, dealer: Dealer) -> None:
        """Deal the rows of workers on dead nodes out again. Ray starts such a worker elsewhere if there is room."""
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        for i, actor in self._actors.items():
            if actor.place and not actor.is_lost and actor.place.node not in alive:
                actor.is_lost = True
                dealer.lost(i)
