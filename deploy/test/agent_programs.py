"""Checks the four agent programs in restricted pods: each mode permits what it should, and nothing else. The programs
are those of tests/agents/install, with the stand-in for their providers."""

import base64
import concurrent.futures
import json
import subprocess
import sys

import chart
from processes import until

PROGRAMS = chart.TOOLS / "agents"
PROVIDER = chart.DEPLOY.parent / "tests" / "agents" / "provider"
MODELS = {
    "codex": "gpt-5.5",
    "claude": "claude-opus-5-5",
    "opencode": "standin/m1",
    "gemini": "gemini-2.5-flash",
}
# The volumes: claims for directories of the node, and their mount points in pods. The programs need system directories.
VOLUMES = {"programs": (PROGRAMS, PROGRAMS), "system": ("/usr", "/usr")}


def hindrance():
    """Returns why the programs cannot run, or an empty text."""
    missing = [name for name in MODELS if not (PROGRAMS / "bin" / name).exists()]
    return f"there is no {' and no '.join(missing)}; install them with: tests/agents/install" if missing else ""


class Provider:
    """The stand-in for providers, at an address of the node."""

    def __init__(self, address, directory):
        ready = directory / "provider-ready"
        command = [sys.executable, PROVIDER, "--host", address, "--ready-file", ready]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.url = until("the provider", lambda: ready.exists() and ready.read_text().strip()).rstrip("/")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def runner_yaml(url):
    key = "sk-of-the-stand-in"

    def program(name, kind, **more):
        models = "standin/*" if name == "opencode" else f"{MODELS[name].split('-')[0]}-*"
        return {"kind": kind, "models": [models], "command": str(PROGRAMS / "bin" / name), **more}

    codex = {"name": "standin", "base_url": f"{url}/v1", "wire_api": "responses", "env_key": "STANDIN_KEY"}
    opencode = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "standin",
        "options": {"baseURL": f"{url}/v1", "apiKey": key},
        "models": {"m1": {"name": "m1", "tool_call": True, "limit": {"context": 100000, "output": 8000}}},
    }
    programs = [
        program(
            "codex",
            "codex",
            environment={"STANDIN_KEY": key},
            provider="standin",
            settings={"model_providers": {"standin": codex}},
        ),
        program("claude", "claude", environment={"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": key}),
        program(
            "opencode",
            "acp",
            profile="opencode",
            settings={
                "enabled_providers": ["standin"],
                "small_model": "standin/m1",
                "provider": {"standin": opencode},
            },
        ),
        program(
            "gemini",
            "acp",
            profile="gemini",
            environment={"GEMINI_API_KEY": key, "GOOGLE_GEMINI_BASE_URL": url},
        ),
    ]
    return json.dumps({"programs": programs})


def roles():
    for name, model in MODELS.items():
        for suffix, more in (("", ""), ("-reader", "read_only: true\n")):
            yield f"{name}{suffix}.md", f"---\ndescription: For a test.\nmodel: {model}\n{more}---\nDo as you are told.\n"


def values():
    """Returns the values of a release with these programs and a workspace."""
    workspace = {"name": "checkouts", "emptyDir": {"sizeLimit": "64Mi"}}
    mount = {"name": "checkouts", "mountPath": "/checkouts"}
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name, "readOnly": True}} for name in VOLUMES]
    mounts = [{"name": name, "mountPath": str(at), "readOnly": True} for name, (_, at) in VOLUMES.items()]
    yaml = {"name": "programs-yaml", "configMap": {"name": "agent-programs"}}
    return {
        "registry": {
            "templates": dict(roles()),
            "extraArgs": ["--workspace-root=/checkouts"],
            "volumes": [workspace],
            "volumeMounts": [mount],
        },
        "runner": {
            "extraArgs": ["--programs=/etc/programs/runner.yaml"],
            "env": [{"name": "PATH", "value": "/bin:/usr/local/bin:/usr/bin"}],
            "volumes": [workspace, yaml, *claims],
            "volumeMounts": [mount, {"name": "programs-yaml", "mountPath": "/etc/programs", "readOnly": True}, *mounts],
            # Allows four programs to run at once.
            "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "4Gi"}},
        },
    }


def try_program(name, execute, look):
    """Yields the problems of one program. `execute` runs the command line, and `look` runs a shell next to the
    programs."""

    def run(role, paths, *session):
        script = "".join(f"echo {name} > {path}; " for path in paths)
        steps = json.dumps([{"shell": f"({script}) 2>/dev/null; true"}, {"text": "done"}])
        task = base64.b64encode(steps.encode()).decode()
        flags = ("--cwd=/checkouts", "--upload-workspace=never", "--wait", "--output=json", *session)
        said = execute("spawn", role, f"--message=Do it. @@b64:{task}@@", *flags)
        if '"done"' not in said:
            yield f"{role}: {said}"

    def written(path):
        return look(f"cat {path} 2>/dev/null || true").strip()

    def expect(mode, *expected):
        for path, wanted in expected:
            if (found := written(path)) != wanted:
                yield f"{name} in {mode}: expected {wanted!r} in {path}, not {found!r}"

    workspace, outside = f"/checkouts/{name}", f"/scratch/outside-{name}"
    yield from run(f"{name}-reader", [f"{workspace}-reader", outside])
    yield from expect("READ_ONLY", (f"{workspace}-reader", ""), (outside, ""))
    yield from run(name, [workspace, outside], "--sandbox=workspace-write")
    yield from expect("WORKSPACE_WRITE", (workspace, name), (outside, ""))
    plan = f"/checkouts/docs/{name}"
    yield from run(name, [plan, f"{workspace}-code", outside], "--planning")
    yield from expect("PLANNING", (plan, name), (f"{workspace}-code", ""), (outside, ""))


def try_all(execute, look):
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for problems in pool.map(lambda name: list(try_program(name, execute, look)), MODELS):
            yield from problems
