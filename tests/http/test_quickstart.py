"""A newcomer's path, as the README has it: contrib/quickstart, then the lines it prints, to a shell in a sandbox."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from berth import BERTHD, ROOT, Engine
from cli import Cli, Terminal


def test_from_quickstart_to_a_shell(engine: Engine, tmp_path: Path) -> None:
    home = tmp_path / "quickstart"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": engine.address, "BERTH_HOME": str(home), "BERTH_BUILD": str(Path(BERTHD).parent)}

    def quickstart(*arguments: str) -> str:
        done = subprocess.run([ROOT / "contrib/quickstart", *arguments], env=env, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        said = quickstart()
        exported = dict(word.split("=", 1) for word in shlex.split(re.search(r"^  export (.*)$", said, re.M).group(1)))  # type: ignore[union-attr]
        readme = re.search(r"^    export (.*)\n    berth status +#.*\n    berth (shell .*?) +#", (ROOT / "README.md").read_text(), re.M)
        assert readme and {word.split("=")[0] for word in shlex.split(readme[1])} == set(exported), "the README has other lines than are printed"
        assert exported["PATH"] == f"{Path(BERTHD).parent}:$PATH"
        command = re.search(r"^  berth (shell .*)$", said, re.M).group(1).split()  # type: ignore[union-attr]
        assert command == readme[2].split()
        told = {"BERTH_TOKEN": "", "BERTH_TOKEN_FILE": exported["BERTH_TOKEN_FILE"]}
        Cli(exported["BERTH_URL"]).run("status", env=told, status=0)
        terminal = Terminal(exported["BERTH_URL"], *command, env=told)
        try:
            terminal.type("echo $((6 * 7)) in; pwd\n")
            terminal.wait_for(r"42 in\r\n/workspace\r\n")
            terminal.type("exit 3\n")
            assert terminal.wait_end() == 3
        finally:
            terminal.close()
        assert (home / "berthd.conf").stat().st_mode & 0o777 == 0o600
    finally:
        quickstart("stop")
        for container in engine.containers():
            if any(m.get("Source", "").startswith(str(home)) for m in container.get("Mounts") or []):
                engine.remove(container["Id"])
