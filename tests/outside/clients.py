#!/usr/bin/env python3
"""Runs the SDKs that agents are written with against a node with scripted answers, and checks what it
says against the published API descriptions where these are there.

usage: clients.py BINARY CACHE [FILE ...]

Each client is installed from its registry into CACHE, in the versions named below, and does a tool
round trip, whole and streamed, in a network of its own where the machine allows that. Ends with a
line `N passed, N failed, N skipped`; a client that cannot be installed is skipped with the reason.
"""
import functools
import os
import pathlib
import subprocess
import sys

from common import NPM, PIP, installed, run_all

HERE = pathlib.Path(__file__).resolve().parent / "clients"
# The published API descriptions, which are not part of this project.
SUITES = pathlib.Path(os.environ.get("DYNAMO_SUITES", HERE.parents[3] / "shared/suites"))
PYTHON = {
    "openai_sdk.py": ["openai==3.57.0"],
    "anthropic_sdk.py": ["anthropic==2.14.0"],
    "conformance.py": ["jsonschema==4.26.0"],
    "langchain_agent.py": ["langchain-openai==1.7.4", "langchain-anthropic==1.7.10"],
}
NODE = {
    "openai_sdk.mjs": ["openai@6.49.0"],
    "anthropic_sdk.mjs": ["@anthropic-ai/sdk@1.14.0"],
    "ai_sdk.mjs": [
        "ai@6.0.326",
        "@ai-sdk/openai@3.0.141",
        "@ai-sdk/anthropic@3.0.140",
        "@ai-sdk/openai-compatible@2.0.92",
    ],
}


def call(name, thinking):
    cities = "".join(
        f'<tool_call>{{"name": "{name}", "arguments": {{"city": "{city}"}}}}</tool_call>'
        for city in ["Oslo", "Rom"]
    )
    text = f"<think>\n{thinking}\n</think>\n\n{cities}"
    # Cut everywhere, as tokens cut.
    return [text[at : at + 7] for at in range(0, len(text), 7)]


ANSWERS = [
    {"prompt_contains": "RESULT-RAIN", "chunks": ["Take an ", "umbrella. 🦀"]},
    {"prompt_contains": "ASK-WEATHER", "chunks": call("get_weather", "Two towns.")},
]


def attempt(command, scratch, url):
    try:
        done = subprocess.run([*command, url], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "still there after 120 s"
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip()[-1500:]


def main():
    binary, cache = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    chosen = sys.argv[3:]
    cases = []
    for name, packages in PYTHON.items():
        if chosen and name not in chosen:
            continue
        folder = cache / "-".join(packages)
        pip = str(folder / "venv/bin/pip")
        steps = [["python3", "-m", "venv", str(folder / "venv")], [pip, *PIP, *packages]]
        command = [str(folder / "venv/bin/python"), str(HERE / name)]
        missing = installed(steps, folder)
        if name == "conformance.py":
            command.append(str(SUITES))
            if not SUITES.is_dir():
                missing = f"the API descriptions are not in {SUITES} (DYNAMO_SUITES)"
        cases.append((" ".join([name, *packages]), missing, functools.partial(attempt, command)))
    for name, packages in NODE.items():
        if chosen and name not in chosen:
            continue
        folder = cache / packages[0].replace("/", "-").lstrip("@")
        # A module finds its packages beside itself.
        copy = ["cp", str(HERE / name), str(folder / name)]
        missing = installed([[*NPM, "--prefix", str(folder), *packages]], folder)
        if missing is None:
            subprocess.run(copy, check=True)
        command = ["node", str(folder / name)]
        cases.append((" ".join([name, *packages]), missing, functools.partial(attempt, command)))
    sys.exit(run_all(binary, cases, ANSWERS))


main()
