"""The schema of an op: every form of the mini-language, and what all ops must declare."""

from __future__ import annotations

import pytest

from webgpu_run.ops.schema import DTYPES, Out, Param, Schema, parse
from webgpu_run.ops.spec import load_all


@pytest.mark.parametrize(
    ("word", "param"),
    [
        ("x", Param("x", "tensor", "activation")),
        ("w!:weight/q4", Param("w", "tensor", "weight", constant=True, dtypes=("q4",))),
        ("w:weight[]", Param("w", "tensors", "weight")),
        ("a/float|int", Param("a", "tensor", "activation", dtypes=("float", "int"))),
        ("kc*:cache<-k", Param("kc", "tensor", "cache", mutable=True, source="k")),
        ("bias?!:bias", Param("bias", "tensor", "bias", optional=True, constant=True)),
        ("eps?:num", Param("eps", "num", optional=True)),
        ("pos:slot", Param("pos", "slot", "position")),
        ("_", Param("_0", "any")),
    ],
)
def test_word(word: str, param: Param) -> None:
    assert parse(f"{word} -> out") == Schema((param,), (Out("out"),), "tensor")


@pytest.mark.parametrize(
    ("text", "outs", "kind"),
    [
        ("out/x", (Out("out", ("x",)),), "tensor"),
        ("[out,index/int]", (Out("out"), Out("index", ("int",))), "list"),
        ("[out*]", (Out("out*"),), "list"),
        ("out:symint", (Out("out"),), "symint"),
    ],
)
def test_outputs(text: str, outs: tuple[Out, ...], kind: str) -> None:
    parsed = parse(f"x -> {text}")
    assert (parsed.outs, parsed.out_kind) == (outs, kind)


@pytest.mark.parametrize("word", ["eps:number", "w:weights", "x/", "x-y", "bias:bias?"])
def test_words_that_are_not_of_the_language(word: str) -> None:
    with pytest.raises(ValueError, match=word.split(":")[0]):
        parse(f"{word} -> out")


def test_what_every_op_declares() -> None:
    for op in load_all().values():
        names = [p.name for p in op.params]
        assert len(set(names)) == len(names), op.name
        for p in op.params:
            assert set(p.dtypes) <= set(DTYPES), f"{op.name}: {p.name}"
            assert not p.source or p.source in names, f"{op.name}: {p.name}"
            assert p.source or not p.mutable, f"{op.name}: nothing is written into {p.name}"
        for dtypes in op.out_dtypes:
            assert set(dtypes) <= {*DTYPES, *names}, op.name
        assert len(op.named("table")) == len(op.named("index")) <= 1, op.name
