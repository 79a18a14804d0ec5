"""The fastest plain ways from a log to Parquet: what a reader is measured against.

A plain parse knows the fields beforehand and believes every byte: no judging of lines, no meaning of fields, no table.
It decodes what the reader needs, JSON inside JSON too, and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from features.readers.base import Reader

Parser = Callable[[Path, Path], None]
LEVEL = 3
"""zstd level of every file that is written here, the lake's own."""
_SAMPLE = r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? +([^ ]+)"


def write(frame: pl.DataFrame, out: Path) -> None:
    """As the lake packs its files."""
    frame.write_parquet(out, compression="zstd", compression_level=LEVEL)


def parsers_of(reader: Reader) -> Mapping[str, Parser]:
    """Plain parses of a reader's format by library; the fastest of them counts."""
    if reader.name in _SPECIAL:
        return _SPECIAL[reader.name]
    schema = {**(_SPANS if reader.name == "otlp-spans" else schema_of(reader)), **_INSIDE.get(reader.name, {})}
    parsers = {"duckdb": _duckdb_json(schema)}
    if not any(isinstance(dtype, str) for dtype in schema.values()):
        parsers["polars"] = lambda path, out: write(pl.read_ndjson(path, schema=schema), out)
    return parsers


def schema_of(reader: Reader) -> dict[str, Any]:
    """The fields of a line that a reader asks for."""
    module = sys.modules[reader.read.__module__]
    if reader.name == "dynamo-fpm":
        return dict(module._Form(("event", "fpm"), "scheduled_requests").schema)  # noqa: SLF001  same
    if hasattr(module, "_SCHEMA"):
        return dict(module._SCHEMA)  # noqa: SLF001  the same fields, not a copy that ages
    if hasattr(module, "log_columns"):
        return dict(module.log_columns())
    return dict(module._PICK.kinds[:2][-1].form.schema)  # noqa: SLF001  same


def _duckdb_json(schema: Mapping[str, Any]) -> Parser:
    def parse(path: Path, out: Path) -> None:
        # Names that differ in case only are one to it.
        known = {name.lower(): (name, sql_type(dtype)) for name, dtype in [*schema.items()][::-1]}
        columns = "{" + ", ".join(f"'{name}': '{kind}'" for name, kind in known.values()) + "}"
        # `maximum_object_size`: a conversation is one object.
        source = (
            f"read_json('{path}', columns = {columns}, format = 'newline_delimited', maximum_object_size = 67108864)"
        )
        _copy(f"SELECT * FROM {source}", out)  # noqa: S608  names are ours

    return parse


def _copy(sql: str, out: Path) -> None:
    connection = duckdb.connect(config={"threads": 1})
    try:
        connection.execute(f"COPY ({sql}) TO '{out}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {LEVEL})")
    finally:
        connection.close()


def sql_type(dtype: Any) -> str:  # noqa: ANN401  a polars dtype, class or instance
    """duckdb's name of a polars dtype; what polars has not comes as that name."""
    if isinstance(dtype, str):
        return dtype
    if isinstance(dtype, pl.Struct):
        inner = ", ".join(f'"{field.name}" {sql_type(field.dtype)}' for field in dtype.fields)
        return f"STRUCT({inner})"
    if isinstance(dtype, pl.List):
        return f"{sql_type(dtype.inner)}[]"
    kinds = {
        pl.String: "VARCHAR",
        pl.Int64: "BIGINT",
        pl.UInt64: "UBIGINT",
        pl.Float64: "DOUBLE",
        pl.Boolean: "BOOLEAN",
    }
    return next(name for kind, name in kinds.items() if dtype == kind)


def _azure_polars(path: Path, out: Path) -> None:
    frame = pl.read_csv(path, columns=["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
    write(frame.with_columns(pl.col("TIMESTAMP").str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us")), out)


def _csv_duckdb(path: Path, out: Path) -> None:
    _copy(f"SELECT * FROM read_csv('{path}')", out)  # noqa: S608  names are ours


def _csv_polars(path: Path, out: Path) -> None:
    write(pl.read_csv(path), out)


def _sglang_requests(path: Path, out: Path) -> None:
    from features.readers import sglang_requests as exporter

    inner = pl.Struct(exporter._PARAMETERS)  # noqa: SLF001  the same fields, not a copy that ages
    frame = pl.read_ndjson(path, schema=exporter._SCHEMA)  # noqa: SLF001  same
    write(frame.with_columns(pl.col("request_parameters").str.json_decode(inner)), out)


def _metric_lines(path: Path, out: Path) -> None:
    lines = pl.read_csv(path, has_header=False, separator="\x01", quote_char=None, new_columns=["line"])
    write(_metric_fields(lines.filter(~pl.col("line").str.starts_with("#"))), out)


def _metric_polls(path: Path, out: Path) -> None:
    schema = {"polled_at_us": pl.Int64, "target": pl.String, "status": pl.Int64, "body": pl.String}
    polls = pl.read_ndjson(path, schema=schema).with_columns(pl.col("body").str.split("\n").alias("line"))
    lines = polls.drop("body").explode("line").filter(pl.col("line").str.len_bytes() > 0)
    write(_metric_fields(lines.filter(~pl.col("line").str.starts_with("#"))), out)


def _metric_fields(lines: pl.DataFrame) -> pl.DataFrame:
    groups = pl.col("line").str.extract_groups(_SAMPLE)
    named = lines.with_columns(groups.struct.rename_fields(["metric", "labels", "value"]).alias("f")).unnest("f")
    return named.drop("line").with_columns(pl.col("value").cast(pl.Float64, strict=False))


def _range_polars(path: Path, out: Path) -> None:
    values = pl.List(pl.List(pl.String()))
    series = pl.Struct({"metric": pl.Struct({"__name__": pl.String(), "instance": pl.String()}), "values": values})
    data = pl.Struct({"resultType": pl.String(), "result": pl.List(series)})
    frame = pl.read_ndjson(path, schema={"status": pl.String(), "data": data})
    flat = frame.select(pl.col("data").struct.field("result")).explode("result").unnest("result").explode("values")
    value = pl.col("values").list
    write(
        flat.select("metric", value.get(0).cast(pl.Float64).alias("at"), value.get(1).cast(pl.Float64).alias("value")),
        out,
    )


_VALUE = pl.Struct(
    {"stringValue": pl.String(), "intValue": pl.String(), "doubleValue": pl.Float64(), "boolValue": pl.Boolean()}
)
_ATTRIBUTES = pl.List(pl.Struct({"key": pl.String(), "value": _VALUE}))
_SPAN = pl.Struct(
    {
        **dict.fromkeys(("traceId", "spanId", "name", "startTimeUnixNano", "endTimeUnixNano"), pl.String()),
        "attributes": _ATTRIBUTES,
    }
)
_SCOPE = pl.Struct({"spans": pl.List(_SPAN)})
_RESOURCE = pl.Struct({"attributes": _ATTRIBUTES})
_SPANS = {"resourceSpans": pl.List(pl.Struct({"resource": _RESOURCE, "scopeSpans": pl.List(_SCOPE)}))}
_INSIDE: Mapping[str, Mapping[str, Any]] = {
    "llm-d-epp-scores": {"endpoint": pl.Struct({"name": pl.String(), "namespace": pl.String()})},
    "envoy-endpoint-scores": {"x-gateway-destination-endpoint-scores": "MAP(VARCHAR, DOUBLE)"},
}
"""JSON that the reader decodes too, as it stands in the logs that are made here."""
_SPECIAL: Mapping[str, Mapping[str, Parser]] = {
    "azure-llm": {"polars": _azure_polars, "duckdb": _csv_duckdb},
    "multi-round-qa": {"polars": _csv_polars, "duckdb": _csv_duckdb},
    "llmservingsim-timeseries": {"polars": _csv_polars, "duckdb": _csv_duckdb},
    "sglang-request-metrics": {"polars": _sglang_requests},
    "prometheus-text": {"polars": _metric_lines},
    "prometheus-polls": {"polars": _metric_polls},
    "prometheus-range": {"polars": _range_polars},
}
