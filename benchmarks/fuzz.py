"""Feed changed and random inputs to every reader: python benchmarks/fuzz.py --cases 1000000

The targets are those of tests/fuzz_targets.py. With --engine atheris, the inputs are chosen by the code that they reach
(libFuzzer); without it, by random changes of valid inputs. Prints each unexpected error once, with an input that causes
it, and the number of cases; the exit status is 1 if there was one.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

SECONDS = 20  # of one case
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # faster than a disk


def run_random(count: int, seed: int, only: str) -> int:
    """The number of different unexpected errors."""
    from fuzz_targets import check, make_targets, mutate

    def stop(*_: object) -> None:
        raise TimeoutError(f"one case took more than {SECONDS} seconds")

    signal.signal(signal.SIGALRM, stop)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        targets = [target for target in make_targets(Path(folder)) if only in target.name]
        weights = sum(target.weight for target in targets)
        for target in targets:
            draw, cases, valid, begin = (
                random.Random(f"{seed} {target.name}"),
                -(-count * target.weight // weights),
                0,
                time.time(),
            )
            for _ in range(cases):
                data = mutate(draw, target.seeds)
                signal.alarm(SECONDS)
                try:
                    valid += check(target, data)
                except Exception as error:
                    place = traceback.extract_tb(error.__traceback__)[-1]
                    key = f"{target.name}: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
                    found[key] += 1
                    if found[key] == 1:
                        print(f"{key}: {str(error)[:200]}\n    input: {data[:400]!r}", flush=True)
                finally:
                    signal.alarm(0)
            print(f"{target.name}: {cases:,} cases, {valid:,} valid, {time.time() - begin:.0f} s", flush=True)
    print(f"{count:,} cases, {len(found)} different unexpected errors")
    return len(found)


def run_atheris(count: int, seed: int, only: str) -> int:
    """The number of targets with an unexpected error; libFuzzer ends the process, so each target has its own."""
    with tempfile.TemporaryDirectory() as folder:
        from fuzz_targets import make_targets

        targets = [target for target in make_targets(Path(folder)) if only in target.name and target.weight > 1]
    weights, failed = sum(target.weight for target in targets), 0
    for target in targets:
        cases = -(-count * target.weight // weights)
        with tempfile.TemporaryDirectory() as corpus:
            for number, content in enumerate(target.seeds):
                Path(corpus, str(number)).write_bytes(content)
            options = [
                f"-runs={cases}",
                f"-seed={seed + 1}",
                "-max_len=4096",
                f"-timeout={SECONDS}",
                "-print_final_stats=1",
            ]
            words = [sys.executable, __file__, "--one", target.name, *options, f"-artifact_prefix={corpus}/", corpus]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        lines = [line for line in done.stderr.splitlines() if "number_of_executed_units" in line or " DONE " in line]
        print(f"{target.name}: {' '.join(lines)}", flush=True)
        if done.returncode:
            failed += 1
            print("\n".join(done.stdout.splitlines()[-15:] + done.stderr.splitlines()[-15:]), flush=True)
    print(f"{count:,} cases, {failed} targets with unexpected errors")
    return failed


def fuzz_one(name: str, arguments: list[str]) -> None:
    """Run libFuzzer on one target; does not return."""
    import atheris

    with atheris.instrument_imports(include=["arbormax.taxonomy", "arbormax.data"]):
        import fuzz_targets
    folder = tempfile.mkdtemp(dir=MEMORY)
    target = next(target for target in fuzz_targets.make_targets(Path(folder)) if target.name == name)
    atheris.Setup([sys.argv[0], *arguments], lambda data: fuzz_targets.check(target, data) and None)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the names of the targets")
    parser.add_argument("--engine", choices=["random", "atheris"], default="random")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    if options.one:
        fuzz_one(options.one, rest)
    run = run_atheris if options.engine == "atheris" else run_random
    sys.exit(bool(run(options.cases, options.seed, options.only)))


if __name__ == "__main__":
    main()
