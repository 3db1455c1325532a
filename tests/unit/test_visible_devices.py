"""Which accelerators a container shows: the plugin's variable, CUDA's, the device files, TensorFlow."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tfcluster_resolver.accelerators import visible_accelerators

PLUGIN, CUDA = "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"


@pytest.fixture
def see(tmp_path, monkeypatch):
    """Counts what a container on Linux with these device files and variables shows."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)

    def count(*files: str, **variables: str) -> dict[str, int] | None:
        for file in files:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).touch()
        return visible_accelerators(environ=variables, devices=tmp_path)

    return count


@pytest.mark.parametrize(
    ("listed", "files", "count"),
    [
        ("GPU-0000,GPU-0001", 0, 2),
        ("GPU-0000,GPU-0000", 0, 1),
        ("0,3", 4, 2),
        ("MIG-a,MIG-b,MIG-c", 1, 3),
        ("GPU-0000,", 0, 1),
        ("all", 3, 3),
        ("void", 2, 2),
        ("none", 0, 0),
        ("", 4, 4),
        (None, 4, 4),
        (None, 0, 0),
    ],
)
def test_plugins_list_goes_before_the_files(see, listed, files, count):
    """What the device plugin lists counts; where it lists nothing the files in /dev do."""
    variables = {} if listed is None else {PLUGIN: listed}

    assert see(*(f"nvidia{n}" for n in range(files)), "nvidiactl", "nvidia-uvm", **variables) == (
        {"GPU": count} if count else {}
    )


def test_plugin_that_mounts_files_is_understood(see, tmp_path):
    """With its strategy "volume-mounts" the plugin names a folder that has a file for each device."""
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed" / "GPU-a").touch()
    (tmp_path / "listed" / "GPU-b").touch()

    assert see(**{PLUGIN: str(tmp_path / "listed")}) == {"GPU": 2}


@pytest.mark.parametrize(
    ("shown", "count"),
    [
        ("0", 1),
        ("0,2", 2),
        ("2,0,1", 3),
        ("0,3,1", 1),
        ("-1", 0),
        ("", 0),
        ("NoDevFiles", 0),
        ("1,-1,2", 1),
        ("0,0,1", 1),
        ("GPU-a,GPU-b", 2),
        ("GPU-a,GPU-b,GPU-c,GPU-d", 3),
        (" 0 , 1 ", 2),
    ],
)
def test_cuda_hides_what_it_does_not_name(see, shown, count):
    """CUDA_VISIBLE_DEVICES shows the devices that it names, up to the first that is not there."""
    told = see("nvidia0", "nvidia1", "nvidia2", **{CUDA: shown})

    assert told == ({"GPU": count} if count else {})


def test_cuda_hides_of_the_plugins_list(see):
    """CUDA_VISIBLE_DEVICES counts within what the plugin gave."""
    assert see(**{PLUGIN: "GPU-0000,GPU-0001", CUDA: "1"}) == {"GPU": 1}
    assert see(**{PLUGIN: "GPU-0000,GPU-0001", CUDA: "2"}) == {}


def test_render_files_are_gpus_of_other_vendors(see):
    """AMD's and Intel's plugins mount a render file for each GPU; CUDA's variable says nothing of them."""
    assert see("dri/renderD128", "dri/renderD129", "dri/card0", **{CUDA: "-1"}) == {"GPU": 2}


def test_render_files_of_nvidias_devices_are_not_counted_again(see):
    """NVIDIA's runtime mounts render files too, for graphics."""
    assert see("nvidia0", "dri/renderD128", "dri/renderD129") == {"GPU": 1}
    assert see("nvidia0", "dri/renderD128", "dri/renderD129", **{CUDA: "-1"}) == {}
    assert see("dri/renderD128", "dri/renderD129", **{PLUGIN: "GPU-0000"}) == {"GPU": 1}


@pytest.mark.parametrize("files", [("accel0", "accel1"), ("vfio/0", "vfio/1", "vfio/vfio")])
def test_tpus_are_files(see, files):
    """TPUs are /dev/accel<N>, or numbers in /dev/vfio."""
    assert see(*files) == {"TPU": 2}


def test_nothing_is_told_outside_of_linux(see, monkeypatch):
    """Where device files have other names nothing can be told."""
    monkeypatch.setattr(sys, "platform", "darwin")

    assert see(**{PLUGIN: "GPU-0"}) is None


def tensorflow_with(gpus: int) -> SimpleNamespace:
    """Play the part of TensorFlow that is asked: a build for GPUs cannot run on the machines that test this."""
    return SimpleNamespace(config=SimpleNamespace(get_visible_devices=lambda kind: [kind] * gpus))


@pytest.mark.parametrize(("gpus", "told"), [(1, {"GPU": 1}), (0, {})])
def test_tensorflow_that_is_loaded_knows_best(see, monkeypatch, gpus, told):
    """What an imported TensorFlow can use goes before variables and files, also where its build can use no GPU."""
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow_with(gpus))

    assert see("nvidia0", "nvidia1", **{PLUGIN: "GPU-0000,GPU-0001"}) == told


@pytest.mark.parametrize("file", ["dxg", "nvmap"])
def test_gpus_without_files_of_their_own_cannot_be_counted(see, monkeypatch, file):
    """Under WSL and on Jetson one file stands for all GPUs: nothing is told until TensorFlow tells."""
    assert see(file) is None

    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow_with(1))
    assert see(file) == {"GPU": 1}


@pytest.mark.parametrize(
    "variables", [{CUDA: "9" * 5000}, {PLUGIN: "/\0"}, {PLUGIN: "/\ud800"}, {CUDA: "٣,\0", PLUGIN: ","}]
)
def test_rubbish_in_variables_is_no_device(see, variables):
    """Whatever the variables hold, nothing is raised and nothing is counted that no file shows."""
    assert see(**variables) == {}


def test_half_imported_tensorflow_says_nothing(see, monkeypatch):
    """While TensorFlow is being imported it has no devices to list."""
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace())

    assert see(**{PLUGIN: "GPU-0000"}) == {"GPU": 1}
