"""`tfcluster create`: what it makes is valid, runs, and is what was asked for."""

from __future__ import annotations

import json

import pytest
import yaml
from click.testing import CliRunner
from support.odd_texts import ODD_TEXTS, readings

from tfcluster import manifest_files, recipes
from tfcluster.commands.root import root
from tfcluster.declared import declare
from tfcluster.kubernetes_api import CONFIG_MAPS, PODS

IMAGE = ("--image", "train:1")
COMMAND = ("--", "python3", "/opt/train.py")


def run(*arguments: str):
    return CliRunner().invoke(root, ["create", *arguments])


def made(*arguments: str):
    """Give the TFCluster that is printed."""
    shown = run("digits", *arguments)
    assert shown.exit_code == 0, shown.output
    (cluster,) = (one for one in yaml.safe_load_all(shown.stdout) if one["kind"] == "TFCluster")
    return cluster


def container(cluster, job):
    return cluster["spec"]["jobs"][job]["template"]["spec"]["containers"][0]


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "train.py"
    file.write_text('import os\n\nprint("a: b #", os.environ)\t\n')
    return file


TOPOLOGIES = {
    "parameter servers": (("--ps", "2", "--workers", "4"), {"chief": 1, "worker": 4, "ps": 2}),
    "equal workers": (("--workers", "2"), {"worker": 2}),
    "a chief among equals": (("--workers", "2", "--chief"), {"chief": 1, "worker": 2}),
    "a chief alone": (("--workers", "0", "--chief"), {"chief": 1}),
    "an evaluator": (("--ps", "1", "--evaluator"), {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}),
    "nobody drives": (("--ps", "1", "--no-chief"), {"worker": 1, "ps": 1}),
    "all at once": (
        ("--ps", "1", "--evaluator", "--isolation", "--gpus", "2", "--max-workers", "8", "--restart-policy", "Never"),
        {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1},
    ),
    "never again": (("--workers", "2", "--restart-policy", "Never"), {"worker": 2}),
}


@pytest.mark.parametrize("case", TOPOLOGIES)
def test_each_topology_runs(client_world, script, case):
    """It is applied, every task gets a pod and becomes ready; the program goes with the cluster."""
    flags, tasks = TOPOLOGIES[case]
    client_world.at_once(lambda: setattr(client_world.nodes, "hurried", True))

    applied = client_world.cli("create", "digits", *IMAGE, *flags, "--script", str(script), "--apply")

    assert applied.exit_code == 0, applied.output
    assert "tfcluster status digits" in applied.stderr
    client_world.await_condition("digits", "Ready")
    with client_world.client() as client:
        pods = list(client.api.list(PODS))
        counts = {job: sum(one["metadata"]["labels"]["tfcluster.dev/job"] == job for one in pods) for job in tasks}
        assert (counts, len(pods)) == (tasks, sum(tasks.values()))
        (program,) = (one for one in client.api.list(CONFIG_MAPS) if "-program-" in one["metadata"]["name"])
        assert program["data"] == {"train.py": script.read_text()}
        mounted = {name for one in pods for name in _config_maps(one) if "-program-" in name}
        assert mounted == {program["metadata"]["name"]}
        client.delete("digits")
        client_world.await_that(lambda: client.api.find(CONFIG_MAPS, program["metadata"]["name"]) is None)


def _config_maps(pod):
    return [one["configMap"]["name"] for one in pod["spec"]["volumes"] if "configMap" in one]


def test_second_try_finishes_what_the_first_began(client_world, script):
    """The connection broke between the two objects; another cluster of that name is left alone."""
    wishes = ("create", "digits", *IMAGE, "--script", str(script), "--apply")
    first = client_world.cli(*wishes)
    with client_world.client() as client:
        (program,) = (
            one["metadata"]["name"] for one in client.api.list(CONFIG_MAPS) if "-program-" in one["metadata"]["name"]
        )
        client.api.delete(CONFIG_MAPS, program)
        again = client_world.cli(*wishes)
        assert client.api.find(CONFIG_MAPS, program) is not None
        other = client_world.cli(*wishes, "--workers", "5")
        assert client.get("digits")["spec"]["jobs"]["worker"]["replicas"] == 1

    assert [one.exit_code for one in (first, again, other)] == [0, 0, 1]
    assert "the same" in again.stderr
    assert "it is another one" in other.stderr


def test_chief_drives_and_filters_keep_workers_apart():
    cluster = made(*IMAGE, "--ps", "1", "--workers", "2", *COMMAND)
    jobs = cluster["spec"]["jobs"]

    assert container(cluster, "chief")["command"] == ["python3", "/opt/train.py"]
    assert "command" not in container(cluster, "worker")
    assert "command" not in container(cluster, "ps")
    assert jobs["worker"]["deviceFilters"] == ["/job:ps", "/job:chief"]
    assert jobs["ps"]["deviceFilters"] == ["/job:worker", "/job:chief"]
    assert not any("restartScope" in job for job in jobs.values())


def test_equal_workers_start_again_together():
    cluster = made(*IMAGE, "--workers", "2", *COMMAND)

    assert cluster["spec"]["jobs"]["worker"]["restartScope"] == "Cluster"
    assert "deviceFilters" not in cluster["spec"]["jobs"]["worker"]


def test_each_option_is_in_the_manifest():
    """Every task has what is every task's, and a GPU who computes."""
    options = ("--cpu", "2", "--memory", "3Gi", "--gpus", "2", "--gpu-resource", "amd.com/gpu", "--port", "3000")
    more = ("--env", "A=b=c", "--env", "EMPTY=", "--data", "claim:/data", "--pvc", "other:/ro:ro", "-n", "team")
    cluster = made(*IMAGE, "--ps", "1", "--max-workers", "7", *options, *more, "--isolation", *COMMAND)

    spec = cluster["spec"]
    assert (cluster["metadata"]["namespace"], spec["port"], spec["isolation"]) == (
        "team",
        3000,
        {"mode": "DeviceFilters"},
    )
    assert spec["jobs"]["worker"]["maxReplicas"] == 7
    for job in ("chief", "worker", "ps"):
        one = container(cluster, job)
        assert one["image"] == "train:1"
        assert one["resources"]["requests"] == {"cpu": "2", "memory": "3Gi"}
        limits = {"memory": "3Gi", **({"amd.com/gpu": 2} if job == "worker" else {})}
        assert one["resources"]["limits"] == limits
        assert one["env"] == [{"name": "A", "value": "b=c"}, {"name": "EMPTY", "value": ""}]
        assert [mount["mountPath"] for mount in one["volumeMounts"]] == ["/data", "/ro"]
        assert [mount.get("readOnly", False) for mount in one["volumeMounts"]] == [False, True]
    claims = [one["persistentVolumeClaim"]["claimName"] for one in spec["jobs"]["ps"]["template"]["spec"]["volumes"]]
    assert claims == ["claim", "other"]


@pytest.mark.parametrize("policy", ["OnFailure", "ExitCode", "Never"])
def test_restart_policy_is_that_of_the_program(policy):
    """Servers that nobody asks to end have the usual one."""
    jobs = made(*IMAGE, "--ps", "1", "--restart-policy", policy, *COMMAND)["spec"]["jobs"]

    assert (jobs["chief"]["restartPolicy"], "restartPolicy" in jobs["worker"]) == (policy, False)


def test_script_is_printed_as_it_is(script):
    """The ConfigMap is named after it; what comes after -- are its arguments."""
    shown = run("digits", *IMAGE, "--script", str(script), "--", "--epochs", "5")
    cluster, program = yaml.safe_load_all(shown.stdout)

    assert program["data"] == {"train.py": script.read_text()}
    name = program["metadata"]["name"]
    assert _config_maps({"spec": cluster["spec"]["jobs"]["worker"]["template"]["spec"]}) == [name]
    assert container(cluster, "worker")["command"] == ["python3", "/opt/program/train.py", "--epochs", "5"]
    script.write_text("print(2)\n")
    assert name not in run("digits", *IMAGE, "--script", str(script)).stdout
    assert "    print(2)\n" in run("digits", *IMAGE, "--script", str(script)).stdout


def test_shell_script_is_run_by_a_shell(tmp_path):
    (tmp_path / "go.sh").write_text("true\n")

    assert container(made(*IMAGE, "--script", str(tmp_path / "go.sh")), "worker")["command"] == [
        "sh",
        "/opt/program/go.sh",
    ]


def test_json_is_what_the_yaml_says(script):
    plain = run("digits", *IMAGE, "-o", "json", *COMMAND)
    both = run("digits", *IMAGE, "-o", "json", "--script", str(script))

    assert json.loads(plain.stdout) == made(*IMAGE, *COMMAND)
    assert [one["kind"] for one in json.loads(both.stdout)["items"]] == ["ConfigMap", "TFCluster"]


@pytest.mark.parametrize("data", [(), ("--data", "claim:/checkpoints")])
def test_comments_say_why_and_what_is_missing(data):
    shown = run("digits", *IMAGE, "--ps", "1", *data, *COMMAND).stdout

    assert "# The chief runs the program" in shown
    assert "#   kubectl apply -f FILE\n" in shown
    assert ("Nothing outlives a pod" in shown) == (not data)


@pytest.mark.parametrize("file", ["y", "1e3", "0o7"])
def test_texts_stay_texts(tmp_path, file):
    """Whoever reads what is printed: Kubernetes, or a tool that knows YAML 1.1 or 1.2."""
    (tmp_path / file).write_text("print()\n")
    told = [*ODD_TEXTS, "a" * 200 + " " + "b" * 200]
    env = [word for index, text in enumerate(told) for word in ("--env", f"V{index}={text}")]

    shown = run("y", "--image", "i", "--script", str(tmp_path / file), *env, "--", *told).stdout

    for cluster, program in readings(shown):
        one = container(cluster, "worker")
        assert [cluster["metadata"]["name"], program["data"]] == ["y", {file: "print()\n"}]
        assert [variable["value"] for variable in one["env"]] == told
        assert one["command"][2:] == told


def test_what_is_printed_can_be_read_again(tmp_path, script):
    file = tmp_path / "cluster.yaml"
    file.write_text(run("digits", *IMAGE, "--ps", "1", "--script", str(script)).stdout)

    assert declare(manifest_files.read([file]).only(), "default").cluster.name == "digits"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "say what it runs"),
        (("--image", "", *COMMAND), "say which image"),
        (("-n", "my team", *COMMAND), '"my team" cannot name a namespace'),
        (("--workers", "0", *COMMAND), "nobody who computes"),
        (("--workers", "3", "--max-workers", "2", *COMMAND), "--max-workers 2 is below --workers 3"),
        (("--data", "a:/x", "--data", "b:/x", *COMMAND), "two volumes at /x"),
        (("--env", "TFCLUSTER_JOB=x", *COMMAND), "TFCLUSTER_JOB"),
        (("--data", "a:/etc/tfcluster", *COMMAND), "/etc/tfcluster"),
        (("--cpu", "much", *COMMAND), '"much" is no quantity'),
        (("--workers", "10001", *COMMAND), "10000"),
    ],
)
def test_what_cannot_be_is_refused_in_words(flags, words):
    shown = run("digits", *IMAGE, *flags)

    assert shown.exit_code == 1
    assert words in shown.stderr
    assert shown.stdout == ""


@pytest.mark.parametrize(
    "flags",
    [("--env", "x"), ("--env", "=x"), ("--data", "claim"), ("--data", "c:x"), ("--data", "c:/x:rw"), ("--ps", "-1")],
)
def test_what_is_spelt_wrong_is_a_wrong_command_line(flags):
    assert run("digits", *IMAGE, *flags, *COMMAND).exit_code == 2


def test_bad_name_is_refused_with_its_rule():
    shown = run("My_Cluster", *IMAGE, *COMMAND)

    assert "the command line: metadata.name" in shown.stderr


def test_script_that_no_config_map_holds_is_refused(tmp_path):
    (tmp_path / "large.py").write_text("#" * (recipes.LARGEST_PROGRAM + 1))
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe")

    large = run("digits", *IMAGE, "--script", str(tmp_path / "large.py"))
    binary = run("digits", *IMAGE, "--script", str(tmp_path / "binary.py"))

    assert (large.exit_code, binary.exit_code) == (1, 2)
    assert "1,000,001 bytes" in large.stderr
    assert "no text in UTF-8" in binary.stderr
