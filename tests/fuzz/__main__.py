"""Fuzz the readers with atheris, guided by coverage: `python tests/fuzz [--seconds N | --runs N] [reader ...]`."""

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

FINDINGS = Path("fuzz-findings")
LIMITS = ("-timeout=60", "-rss_limit_mb=3000", "-max_len=20000", "-print_final_stats=1")
"""Seconds that one input may take, megabytes that the process may, and bytes of an input."""

try:
    import atheris
except ImportError:
    sys.exit("Fuzzing needs atheris: pip install -c constraints.txt 'afda[fuzz]'.")
with atheris.instrument_imports(include=["afda"], enable_loader_override=False):
    from mutations import ODD_TOKENS
    from targets import TARGETS, finished
    from trying import try_one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__)
    parser.add_argument("readers", nargs="*", metavar="reader", help=f"all, or some of: {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, help="for each reader (60, unless --runs is given)")
    parser.add_argument("--runs", type=int, help="inputs for each reader")
    asked = parser.parse_args()
    if strange := set(asked.readers) - set(TARGETS):
        parser.error(f"there is no reader {strange.pop()}; choose from: {', '.join(TARGETS)}")
    how = [f"-runs={asked.runs}"] if asked.runs else []
    how += [f"-max_total_time={asked.seconds or 60}"] if asked.seconds or not asked.runs else []
    FINDINGS.mkdir(exist_ok=True)
    finished()  # made once, for all
    return max([fuzzed(name, how) for name in asked.readers or TARGETS])


def fuzzed(name: str, how: list[str]) -> int:
    """Fuzz one reader in a process of its own, which libFuzzer ends, and tell how it went."""
    with tempfile.TemporaryDirectory(prefix="afda-fuzz-") as folder:
        corpus, words, told = (Path(folder) / part for part in ("corpus", "words", "told"))
        corpus.mkdir()
        for i, seed in enumerate(TARGETS[name].seeds()):
            (corpus / str(i)).write_bytes(seed)
        quoted = ("".join(f"\\x{byte:02x}" for byte in token) for token in ODD_TOKENS if len(token) < 64)
        words.write_text("".join(f'"{token}"\n' for token in quoted))
        process = os.fork()
        if not process:
            with told.open("wb") as file:
                os.dup2(file.fileno(), 2)
            options = [*LIMITS, *how, f"-dict={words}", f"-artifact_prefix={FINDINGS}/{name}-", str(corpus)]
            atheris.Setup([sys.argv[0], *options], lambda content: try_one(name, content) and None)
            atheris.Fuzz()
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        report = told.read_text(errors="replace")
    counts, branches = re.findall(r"number_of_executed_units: *(\d+)", report), re.findall(r"cov: (\d+)", report)
    inputs = f"{int(counts[-1]):,} inputs" if counts else "not finished"
    print(f"{name}: {inputs}, {branches[-1] if branches else 0} places in the code reached", flush=True)
    if code:
        print(f"{report[-3000:]}\nThe input is in {FINDINGS}/.", file=sys.stderr)
    return int(code != 0)


if __name__ == "__main__":
    sys.exit(main())
