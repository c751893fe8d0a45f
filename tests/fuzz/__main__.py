"""Fuzz the readers with atheris, guided by coverage: `python tests/fuzz [--seconds N | --runs N] [reader ...]`."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FINDINGS = Path("fuzz-findings")
LIMITS = ("-timeout=30", "-rss_limit_mb=3000", "-max_len=20000")
"""Seconds that one input may take, megabytes that the process may, and bytes of an input."""


def main() -> int:
    from targets import TARGETS

    parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__)
    parser.add_argument("readers", nargs="*", metavar="reader", help=f"all, or some of: {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, help="for each reader (60, unless --runs is given)")
    parser.add_argument("--runs", type=int, help="inputs for each reader")
    asked = parser.parse_args()
    if strange := set(asked.readers) - set(TARGETS):
        parser.error(f"there is no reader {strange.pop()}; choose from: {', '.join(TARGETS)}")
    try:
        import atheris  # noqa: F401
    except ImportError:
        print("Fuzzing needs atheris: pip install -c constraints.txt 'afda[fuzz]'.", file=sys.stderr)
        return 2
    how = [f"-runs={asked.runs}"] if asked.runs else []
    how += [f"-max_total_time={asked.seconds or 60}"] if asked.seconds or not asked.runs else []
    return max([fuzzed(name, how) for name in asked.readers or TARGETS])


def fuzzed(name: str, how: list[str]) -> int:
    """Fuzz one reader in a process of its own, which libFuzzer ends."""
    from mutations import ODD_TOKENS
    from targets import TARGETS

    FINDINGS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="afda-fuzz-") as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for i, seed in enumerate(TARGETS[name].seeds()):
            (corpus / str(i)).write_bytes(seed)
        words = Path(folder) / "words"
        quoted = ("".join(f"\\x{byte:02x}" for byte in token) for token in ODD_TOKENS if len(token) < 64)
        words.write_text("".join(f'"{token}"\n' for token in quoted))
        done = subprocess.run(
            [sys.executable, __file__, *LIMITS, *how, f"-dict={words}", f"-artifact_prefix={FINDINGS}/{name}-"]
            + ["-print_final_stats=1", str(corpus)],
            env={**os.environ, "AFDA_FUZZED": name},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
    counted = re.search(r"number_of_executed_units: *(\d+)", done.stderr) or re.search(r"Done (\d+) runs", done.stderr)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    inputs = f"{int(counted[1]):,} inputs" if counted else "unfinished"
    print(f"{name}: {inputs}, {covered[-1] if covered else 0} branches reached", flush=True)
    if done.returncode:
        print(f"{done.stderr[-3000:]}\nThe input is in {FINDINGS}/.", file=sys.stderr)
    return min(done.returncode, 1) if done.returncode >= 0 else 1


def guided(name: str) -> None:
    import atheris

    with atheris.instrument_imports(include=["afda"], enable_loader_override=False):
        from trying import try_one

    def one(content: bytes) -> None:
        try_one(name, content)

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    if "AFDA_FUZZED" in os.environ:
        guided(os.environ["AFDA_FUZZED"])
    else:
        sys.exit(main())
