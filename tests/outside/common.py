"""What the runs of foreign programs share: a node with scripted answers, and a network of its own."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

MODEL = "builtin"


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


# A registry that is not there is found out soon.
NPM = ["npm", "install", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=60000"]
PIP = ["install", "--quiet", "--disable-pip-version-check", "--retries=1", "--timeout=60"]


# Programs of an installation that have failed, and why: they are not tried again.
failed_steps = {}


def installed(steps, folder):
    """Runs the steps of an installation once; why it failed, or None."""
    if (folder / "whole").exists():
        return None
    for step in steps:
        if why := failed_steps.get(pathlib.Path(step[0]).name):
            return why
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for step in steps:
        if not shutil.which(step[0]):
            return f"{step[0]} is not installed"
        try:
            done = subprocess.run(step, cwd=folder, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return f"{step[0]} took more than 300 s"
        if done.returncode != 0:
            name = pathlib.Path(step[0]).name
            failed_steps[name] = f"{name} failed: {last_line(done.stderr or done.stdout)}"
            return failed_steps[name]
    (folder / "whole").touch()
    return None


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-200:] if lines else "without a word"


def alone():
    """Goes on in a network namespace of its own; false where that is not allowed."""
    if os.environ.get("DYNAMO_TEST_ALONE"):
        return True
    again = [sys.executable, *sys.argv]
    up = "ip link set lo up && exec \"$@\""
    shell = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c"]
    probe = subprocess.run([*shell, "ip link set lo up"], capture_output=True) if (
        shutil.which("unshare") and shutil.which("ip")
    ) else None
    if probe is None or probe.returncode != 0:
        return False
    os.environ["DYNAMO_TEST_ALONE"] = "1"
    os.execvp(shell[0], [*shell, up, "sh", *again])


def free_port():
    """A port that is free now, as the one after it is."""
    while True:
        with socket.socket() as one, socket.socket() as next_one:
            one.bind(("127.0.0.1", 0))
            try:
                next_one.bind(("127.0.0.1", one.getsockname()[1] + 1))
            except (OSError, OverflowError):
                continue
            return one.getsockname()[1]


def start(binary, folder, answers):
    """A node with the scripted mock engine; the process and its address."""
    write(folder / "script.jsonl", "".join(json.dumps(answer) + "\n" for answer in answers))
    config = f'[engine]\nkind = "mock"\n[engine.mock]\nscript = "{folder}/script.jsonl"\nspeedup = 50.0\n'
    write(folder / "node.toml", config)
    out, err = open(folder / "out", "w"), open(folder / "err", "w")
    listen = ["--http", "127.0.0.1:0", "--listen", f"127.0.0.1:{free_port()}"]
    start = [binary, "start", "--config", folder / "node.toml", "--data-dir", folder / "data"]
    node = subprocess.Popen([*start, *listen], stdout=out, stderr=err)
    until = time.monotonic() + 60
    while "\n" not in (folder / "out").read_text():
        if node.poll() is not None or time.monotonic() > until:
            node.kill()
            raise RuntimeError(f"the node does not start: {(folder / 'err').read_text()[-400:]}")
        time.sleep(0.05)
    return node, (folder / "out").read_text().split()[1]


def end_all(home):
    """Ends what runs with this home: agents leave daemons behind."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            pass


def run_all(binary, cases, answers):
    """Runs cases against one node and prints a line for each and the counts; the exit status.

    A case is its name, why it is skipped (or None), and a function of a scratch folder and the
    node's address that returns why it failed (or None).
    """
    if not alone():
        print("note: no network namespace of their own: what runs here can reach the network")
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory(prefix="dynamo-outside-") as scratch:
        scratch = pathlib.Path(scratch)
        try:
            node, url = start(binary, scratch, answers)
        except (RuntimeError, OSError) as error:
            print(f"FAILED {error}\n0 passed, {len(cases)} failed, 0 skipped")
            return 1
        try:
            for name, missing, attempt in cases:
                if missing is not None:
                    skipped += 1
                    print(f"SKIPPED {name}: {missing}", flush=True)
                    continue
                begun = time.monotonic()
                why = attempt(scratch, url)
                took = time.monotonic() - begun
                failed, passed = failed + (why is not None), passed + (why is None)
                word = "ok" if why is None else "FAILED"
                text = "" if why is None else f": {why}"
                print(f"{word} {name} ({took:.1f} s){text}", flush=True)
        finally:
            node.terminate()
            node.wait()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return int(failed > 0)
