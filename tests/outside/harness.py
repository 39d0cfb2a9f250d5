#!/usr/bin/env python3
"""Runs real coding agents against a node with scripted answers: each must do a small task.

usage: harness.py BINARY CACHE [NAME ...]

Each agent is installed from npm into CACHE, in the version named below, and run in a network
namespace of its own with nothing but loopback, where the machine allows that. An agent passes when
the tool call of the first scripted answer has written its marker file, and it has ended by itself
after the second. Ends with a line `N passed, N failed, N skipped`.
"""
import functools
import json
import os
import pathlib
import subprocess
import sys

from common import MODEL, NPM, end_all, installed, run_all, write

PATIENCE_S = 120
COMMAND = "echo written > marker.txt"


class Agent:
    """An agent: what to install, the tool it writes with, and how it is told of the node."""

    def __init__(self, name, package, program, tool, arguments, run, after=None, first=None):
        self.name, self.package, self.program = name, package, program
        self.tool, self.arguments, self.run = tool, arguments, run
        # A file of the package to run after the installation; a command to run before the task.
        self.after, self.first = after, first

    def steps(self, folder):
        """What installs it into a folder."""
        after = [["node", str(folder / "node_modules" / self.after)]] if self.after else []
        return [[*NPM, "--prefix", str(folder), self.package], *after]

    def word(self):
        """Stands in the prompt and tells the script which answer to play."""
        return f"MARK-{self.name.upper()}"


def claude(ask, home, url):
    names = ["ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"]
    env = {name: MODEL for name in names}
    env |= {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "IS_SANDBOX": "1",
    }
    return ["-p", ask, "--dangerously-skip-permissions"], env


def codex(ask, home, url):
    write(
        home / ".codex/config.toml",
        f'model = "{MODEL}"\nmodel_provider = "node"\n[model_providers.node]\nname = "node"\n'
        f'base_url = "{url}/v1"\nwire_api = "responses"\n',
    )
    skip = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return ["exec", *skip, ask], {"CODEX_HOME": str(home / ".codex")}


def opencode(ask, home, url):
    options = {"baseURL": f"{url}/v1", "apiKey": "none"}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "node",
        "options": options,
        "models": {MODEL: {"name": MODEL}},
    }
    config = {"autoupdate": False, "share": "disabled", "provider": {"node": provider}}
    write(home / ".config/opencode/opencode.json", config)
    return ["run", "-m", f"node/{MODEL}", ask], {"OPENCODE_DISABLE_MODELS_FETCH": "1"}


def pi(ask, home, url):
    models = [{"id": MODEL, "name": MODEL, "contextWindow": 200000, "maxTokens": 8000}]
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": "none",
        "models": models,
    }
    write(home / ".pi/agent/models.json", {"providers": {"node": provider}})
    return ["--provider", "node", "--model", MODEL, "-p", ask], {"PI_OFFLINE": "1"}


def qwen(ask, home, url):
    write(home / ".qwen/settings.json", {"privacy": {"usageStatisticsEnabled": False}})
    env = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": MODEL}
    return ["--auth-type", "openai", "--yolo", "-p", ask], env


def cline(ask, home, url):
    return ["-P", "openai", "-m", MODEL, ask], {}


def cline_auth(url):
    return ["auth", "openai", "--baseurl", f"{url}/v1", "--apikey", "none", "--modelid", MODEL]


SHELL = {"command": COMMAND, "description": "writes the marker"}
AGENTS = [
    Agent(
        "claude-code",
        "@anthropic-ai/claude-code@2.1.197",
        "claude",
        "Bash",
        SHELL,
        claude,
        after="@anthropic-ai/claude-code/install.cjs",
    ),
    Agent("codex", "@openai/codex@0.171.0", "codex", "exec_command", {"cmd": COMMAND}, codex),
    Agent(
        "opencode",
        "opencode-ai@1.18.33",
        "opencode",
        "bash",
        SHELL,
        opencode,
        after="opencode-ai/postinstall.mjs",
    ),
    Agent("pi", "@mariozechner/pi-coding-agent@0.73.1", "pi", "bash", {"command": COMMAND}, pi),
    Agent(
        "qwen-code",
        "@qwen-code/qwen-code@0.15.10",
        "qwen",
        "run_shell_command",
        SHELL | {"is_background": False},
        qwen,
    ),
    Agent(
        "cline",
        "cline@3.0.65",
        "cline",
        "run_commands",
        {"commands": [COMMAND]},
        cline,
        first=cline_auth,
    ),
]


def answers():
    """The answers: a tool call for each agent's task; once that was made, a word of goodbye."""
    goodbye = ["<think>\nhm\n</think>\n\nAll ", "done."]
    played = [{"prompt_contains": COMMAND, "chunks": goodbye}]
    for agent in AGENTS:
        call = json.dumps({"name": agent.tool, "arguments": agent.arguments})
        played.append(
            {
                "prompt_contains": agent.word(),
                # Cut within the marker, as real tokens cut it.
                "chunks": ["<think>\nI write.\n</think>\n\nWriting. <tool_", f"call>{call}</tool_call>"],
            }
        )
    return [*played, {"chunks": goodbye}]


def attempt(agent, folder, scratch, url):
    """Why the agent failed; None when it did its task."""
    home, work = scratch / agent.name / "home", scratch / agent.name / "work"
    home.mkdir(parents=True)
    work.mkdir()
    ask = f"Please do the task {agent.word()} in this folder."
    arguments, env = agent.run(ask, home, url)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "dumb", "NO_COLOR": "1"} | env
    program = folder / "node_modules/.bin" / agent.program
    if agent.first:
        first = [program, *agent.first(url)]
        options = {"cwd": work, "env": env, "stdin": subprocess.DEVNULL, "capture_output": True}
        subprocess.run(first, timeout=PATIENCE_S, **options)
    log = scratch / agent.name / "log"
    with open(log, "w") as out:
        child = subprocess.Popen(
            [program, *arguments],
            cwd=work,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
        try:
            code = child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = f"still there after {PATIENCE_S} s"
        finally:
            end_all(home)
    tail = log.read_text(errors="replace").strip()[-600:]
    if not (work / "marker.txt").exists():
        return f"the marker file was not written (exit {code}): {tail}"
    if code != 0:
        return f"it ended with {code}: {tail}"
    return None


def main():
    binary, cache = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    names = sys.argv[3:]
    known = [agent.name for agent in AGENTS]
    for name in names:
        if name not in known:
            sys.exit(f"error: there is no agent {name}\nhelp: one of {', '.join(known)}")
    cases = []
    for agent in AGENTS:
        if not names or agent.name in names:
            folder = cache / agent.package.replace("/", "-").lstrip("@")
            missing = installed(agent.steps(folder), folder)
            title = f"{agent.name} {agent.package.rsplit('@', 1)[1]}"
            cases.append((title, missing, functools.partial(attempt, agent, folder)))
    sys.exit(run_all(binary, cases, answers()))


main()
