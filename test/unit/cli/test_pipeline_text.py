"""The syntax of pipelines."""

import pytest

from shardc.diagnostics.cli import BadPipeline
from shardc.passes.manager.pass_pipeline_text import Element, parse_options, parse_pipeline


def test_names_options_and_nesting() -> None:
    assert parse_pipeline("a-b{x=1 y={p=q}}, c ,func.func( d , e{z} )") == (
        Element("a-b", "x=1 y={p=q}"),
        Element("c"),
        Element("func.func", children=(Element("d"), Element("e", "z"))),
    )


def test_the_module_around_a_pipeline_is_taken_off() -> None:
    assert parse_pipeline("builtin.module(cse,canonicalize)") == (Element("cse"), Element("canonicalize"))


@pytest.mark.parametrize(
    "text", ["cse", "a{x=1 y=2},b", "func.func(cse,any(canonicalize{max-iterations=3}))"]
)
def test_an_element_prints_as_it_is_read(text: str) -> None:
    assert ",".join(map(str, parse_pipeline(text))) == text


def test_nothing_is_no_element() -> None:
    assert parse_pipeline(" ") == ()


@pytest.mark.parametrize(
    ("text", "problem", "column"),
    [
        ("cse,", "expected a name here", 4),
        (",cse", "expected a name here", 0),
        ("cse cse", "before 'c'", 4),
        ("func.func(cse", "a closing parenthesis is missing", 13),
        ("cse)", "before ')'", 3),
        ("cse{a=1", "this '{' is never closed", 3),
        ("func.func()", "expected a name here", 10),
    ],
)
def test_a_mistake_is_shown_where_it_is(text: str, problem: str, column: int) -> None:
    with pytest.raises(BadPipeline) as caught:
        parse_pipeline(text)
    lines = caught.value.render().split("\n")
    assert problem in lines[0]
    assert lines[1:3] == [f"    {text}", "    " + " " * column + "^"]


def test_values_of_options() -> None:
    text = "a=1 b='x y' c d={1 2} e=f(g h),i"
    assert parse_options(text) == {"a": "1", "b": "x y", "c": "", "d": "1 2", "e": "f(g h),i"}


@pytest.mark.parametrize("text", ["a=1 a=2", "a='x", "=1"])
def test_bad_options(text: str) -> None:
    with pytest.raises(BadPipeline):
        parse_options(text)
