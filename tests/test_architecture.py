"""The shape of the house, held by tests: who may import whom, who may touch files, how long a file may be."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("features", "models", "policies", "pipelines")
"""Lowest first: a package imports itself and those before it."""
MAX_LINES = 300
SOURCES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
TREES = {path: ast.parse(path.read_text("utf-8")) for path in SOURCES}
FILE_CALLS = {
    "open", "read_text", "read_bytes", "write_text", "write_bytes", "unlink", "mkdir", "rmdir", "rename", "touch",
    "read_parquet", "write_parquet", "scan_parquet", "sink_parquet", "read_csv", "write_csv", "scan_csv", "read_ndjson",
    "write_ndjson", "scan_ndjson", "savefig", "tofile", "fromfile", "loadtxt", "savetxt", "rmtree", "copyfile",
}  # fmt: skip
MAY_TOUCH_FILES = (
    "features/readers/", "features/lake.py", "features/parquet.py", "features/files.py", "features/views.py",
    "features/ingest.py", "features/staging.py", "features/merge.py", "features/privacy.py",
    "features/derived/derive.py", "features/diagnosis/session.py",
    "policies/store", "policies/signing", "policies/compiled.py", "policies/search/journal.py",
    "pipelines/",
)  # fmt: skip
"""Readers, the lake with its staging and names, the stores of policies and workloads and their keys, the kernel cache,
the journal of a search."""
DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "PyYAML", "pydantic_core": "pydantic"}
"""Module -> distribution that brings it, where the names differ."""
PICKLES = {"pickle", "cloudpickle", "joblib", "dill", "shelve", "marshal"}
CLOCKS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("time", "time"),
          ("time", "time_ns"), ("random", "random"), ("random", "seed"), ("uuid", "uuid4")}  # fmt: skip


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every imported module with its line, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def found(rule: str, breaks: Iterator[str]) -> None:
    """Fail with every place that breaks the rule."""
    places = list(breaks)
    assert not places, f"{rule}:\n" + "\n".join(places)


def importing(*modules: str, outside: str | tuple[str, ...]) -> Iterator[str]:
    """Places outside a package that import one of the modules."""
    for path, tree in TREES.items():
        if not name_of(path).startswith(outside):
            yield from (
                f"{name_of(path)}:{line} imports {m}" for line, m in imports(tree) if m.split(".")[0] in modules
            )


def test_sources_are_found() -> None:
    assert {name_of(path).split("/")[0] for path in SOURCES} == set(LAYERS)


def test_imports_run_one_way() -> None:
    def breaks() -> Iterator[str]:
        for path, tree in TREES.items():
            at = LAYERS.index(name_of(path).split("/")[0])
            forbidden = {*LAYERS[at + 1 :], "tests", "benchmarks"}
            yield from (
                f"{name_of(path)}:{line} imports {module}"
                for line, module in imports(tree)
                if module.split(".")[0] in forbidden or module.startswith(".")
            )

    found("imports are absolute and run pipelines -> policies -> models -> features", breaks())


def test_orchestration_stays_in_pipelines() -> None:
    found("dagster and mlflow are imported in pipelines/ only", importing("dagster", "mlflow", outside="pipelines/"))


def test_compiler_stays_in_policies() -> None:
    found("numba is imported in policies/ only", importing("numba", outside="policies/"))


def test_only_one_file_compiles() -> None:
    compiling = ("policies/compiled.py", "policies/numba_setup.py")
    found("kernels are compiled by policies.compiled.kernel", importing("numba", "llvmlite", outside=compiling))


def test_no_pickle() -> None:
    found("nothing is pickled", importing(*PICKLES, outside="nowhere"))


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    heavy = {"lightgbm", "sklearn", "matplotlib", "mlflow", "duckdb", "optuna", "scipy"}

    def breaks() -> Iterator[str]:
        for path, tree in TREES.items():
            if name_of(path) == "pipelines/io/portable_model.py":  # mlflow itself runs this file
                continue
            top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
            for node in top:
                yield from (
                    f"{name_of(path)}:{line} imports {module}"
                    for line, module in imports(node)
                    if module.split(".")[0] in heavy
                )

    found(f"{', '.join(sorted(heavy))} are imported inside functions", breaks())


def test_files_are_touched_at_the_edges_only() -> None:
    def breaks() -> Iterator[str]:
        for path, tree in TREES.items():
            if name_of(path).startswith(MAY_TOUCH_FILES):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                    if called in FILE_CALLS:
                        yield f"{name_of(path)}:{node.lineno} calls {called}"

    found("reading and writing happen in readers, the lake, the stores and pipelines/", breaks())


def test_time_and_randomness_are_arguments() -> None:
    def breaks() -> Iterator[str]:
        for path, tree in TREES.items():
            if name_of(path).startswith("pipelines/"):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                    owner = getattr(node.value, "id", getattr(node.value, "attr", ""))
                    if (owner, node.attr) in CLOCKS:
                        yield f"{name_of(path)}:{node.lineno} uses {owner}.{node.attr}"

    found("below pipelines/ there is no clock and no hidden randomness", breaks())


def test_files_stay_short() -> None:
    lengths = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in SOURCES}
    found(f"a file has at most {MAX_LINES} lines", (f"{n} has {k}" for n, k in lengths.items() if k > MAX_LINES))


def test_packages_say_nothing_at_import() -> None:
    inits = [path for path in SOURCES if path.name == "__init__.py"]
    assert {path.parent for path in SOURCES} == {path.parent for path in inits}, "every package folder has __init__.py"
    found("__init__.py files are empty", (name_of(path) for path in inits if path.read_text("utf-8").strip()))


def test_data_holds_no_code() -> None:
    found("data/ holds no Python", (name_of(path) for path in (ROOT / "data").rglob("*.py")))


def declared() -> tuple[set[str], set[str]]:
    """Distributions that pyproject.toml and requirements.lock name, normalised."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    named = {re.split(r"[\[=<>~! ]", line, maxsplit=1)[0] for line in project["dependencies"]}
    locked = set(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[a-z,]+\])?==", lock, re.MULTILINE))
    return {normal(name) for name in named}, {normal(name) for name in locked}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_import_is_a_declared_dependency() -> None:
    named, locked = declared()
    assert named <= locked, "requirements.lock lacks a dependency: make lock"

    def breaks() -> Iterator[str]:
        for path, tree in TREES.items():
            for line, module in imports(tree):
                top = module.split(".")[0]
                if top in sys.stdlib_module_names or top in LAYERS or top == "":
                    continue
                if normal(DISTRIBUTIONS.get(top, top)) not in named:
                    yield f"{name_of(path)}:{line} imports {top}"

    found("an imported distribution stands in pyproject.toml", breaks())


def test_every_dependency_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    found("a dependency has bounds and a reason", (
        line.strip() for line in block[1].splitlines() if not re.search(r'"[^"]+(==|>=[^"]*<)[^"]*",\s+# [`\w]', line)
    ))  # fmt: skip


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml", "Makefile", ".ci/run"])
def test_no_host_is_named(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert not re.search(r"https?://|--index-url|--find-links|--trusted-host", re.sub(r"--no-emit-\S+", "", text))
