"""A model that follows a script: it calls one tool a turn, reads what came back, and decides by it. The same for both generations' tools."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

Script = Generator[tuple[str, dict[str, Any]], str, str]

PROGRAM = "def mean(values):\n    return sum(values) / 2\n"
TEST = """import unittest
from stats import mean


class MeanTest(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 2, 3]), 2)
"""


def mend_the_mean() -> Script:
    """Write a program that is wrong and its test, see it fail, find the fault, mend it, see it pass. Returns what it tells the user."""
    for path, content in (("stats.py", PROGRAM), ("test_stats.py", TEST)):
        said = yield "write_file", {"path": path, "content": content}
        assert "Wrote" in said, said
    said = yield "execute", {"command": "python3 -m unittest 2>&1"}
    assert "AssertionError: 3.0 != 2" in said and "exit code 1" in said, said
    said = yield "glob", {"pattern": "*.py"}
    assert "stats.py" in said and "test_stats.py" in said, said
    said = yield "grep", {"pattern": "def mean", "path": ".", "output_mode": "content"}
    assert "stats.py" in said and "1" in said and "test_stats.py" not in said, said
    said = yield "read_file", {"path": "stats.py"}
    line = next(line for line in said.splitlines() if "return" in line)
    faulty = line[line.index("return") :]
    said = yield "edit_file", {"path": "stats.py", "old_string": faulty, "new_string": faulty.replace("2", "len(values)")}
    assert "Error" not in said, said
    said = yield "execute", {"command": "python3 -m unittest 2>&1"}
    assert "OK" in said and "FAILED" not in said, said
    said = yield "ls", {"path": "."}
    assert "test_stats.py" in said, said
    return "mended"


def look_again() -> Script:
    """A later turn, of an application that was started anew: the files are where they were."""
    said = yield "read_file", {"path": "stats.py"}
    assert "len(values)" in said, said
    said = yield "execute", {"command": "python3 -c 'import stats; print(stats.mean([4, 6]))'"}
    assert "5.0" in said, said
    return "still there"


class ScriptedModel(FunctionModel):
    """Gives each tool's answer to the script and asks for what the script wants next. `calls` are the tools it called."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.calls: list[str] = []
        super().__init__(self._next)

    def _next(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        assert not isinstance(last, RetryPromptPart), f"{last.tool_name} was refused: {last.content}"
        try:
            tool, arguments = self.script.send(str(last.content)) if isinstance(last, ToolReturnPart) else next(self.script)
        except StopIteration as end:
            return ModelResponse(parts=[TextPart(end.value)])
        assert tool in {offered.name for offered in info.function_tools}, f"no tool {tool}"
        self.calls.append(tool)
        return ModelResponse(parts=[ToolCallPart(tool, arguments)])
