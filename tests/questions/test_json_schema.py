"""The JSON schema of every question is valid, complete, and fits what the command line prints."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from jsonschema import Draft202012Validator, ValidationError

import detoklens as dl
from detoklens.questions.catalogue import QUESTIONS
from detoklens.questions.parameters import settings_of
from tests.command_line import call


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_it_is_a_valid_and_complete_schema(name: str) -> None:
    found = dl.schema(name)
    Draft202012Validator.check_schema(found)
    Draft202012Validator.check_schema(found["$defs"]["parameters"])
    question = QUESTIONS[name]
    parameters = found["$defs"]["parameters"]["properties"]
    assert list(parameters) == [setting.name for setting in settings_of(question)]
    assert set(parameters) <= {field.name for field in fields(question)}
    for table in question.tables:
        columns = found["$defs"][table.name]["properties"]
        assert {key: value["description"] for key, value in columns.items()} == {
            column.name: column.meaning for column in table.columns
        }
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_examples_and_defaults_fit_the_parameters(name: str) -> None:
    check = Draft202012Validator(dl.schema(name)["$defs"]["parameters"])
    for question in QUESTIONS[name].examples():
        given = {setting.name: getattr(question, setting.name) for setting in settings_of(type(question))}
        check.validate(json.loads(json.dumps(given, default=str)))
    with pytest.raises(ValidationError):
        check.validate({"nothing": 1})


@pytest.mark.parametrize("words", ["shape demo", "partners demo ion --top 2", "variance demo --table undertrained"])
def test_printed_answers_fit(words: str) -> None:
    done = call(*words.split(), "--format", "json")
    assert done.exit_code == 0, done.stderr
    printed, schema = json.loads(done.stdout), dl.schema(words.split()[0])
    Draft202012Validator(schema).validate(printed)
    printed["rows"][0]["nothing"] = 1
    with pytest.raises(ValidationError):
        Draft202012Validator(schema).validate(printed)


@pytest.mark.parametrize("words", ["verify demo --length 4", "counts show demo", "counts show demo ion"])
def test_rows_of_other_commands_fit(words: str) -> None:
    done = call(*words.split(), "--format", "json")
    assert done.exit_code == 0, done.stderr
    printed, check = json.loads(done.stdout), Draft202012Validator(dl.schema(words.split()[0]))
    check.check_schema(check.schema)
    check.validate(printed)
    with pytest.raises(ValidationError):
        check.validate([{**printed[0], "nothing": 1}])
    assert dl.schema()["commands"][words.split()[0]] == check.schema


def test_the_command_prints_the_same() -> None:
    assert json.loads(call("schema", "auroc").stdout) == dl.schema("auroc")
    assert json.loads(call("schema").stdout) == dl.schema()
    refused = call("schema", "nothing")
    assert refused.exit_code == 1
    assert "unknown question 'nothing'; the questions are partners" in refused.stderr
