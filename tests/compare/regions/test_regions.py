"""The regions of recorded runs: every launch between the tensors that it reads and those that it writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aoti_debug.compare.regions.regions import Regions, find_region, find_regions
from aoti_debug.package import program_graphs
from aoti_debug.package.program_graphs import NodeKind, Reference, ValueKey
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.rundir.run_directory import RunDir

Runs = Callable[[str], RunDir]


def reference_of(run: RunDir) -> Reference:
    assert run.package is not None
    return program_graphs.from_json(archive.inspect(run.package).read(program_graphs.MEMBER))


def regions_of(run: RunDir) -> Regions:
    return find_regions(run, reference_of(run))


def test_the_reference_of_a_model(saved: Runs) -> None:
    reference = reference_of(saved("control"))
    assert reference.failure == ""
    names = {graph.name for graph in reference.graphs}
    assert names == {"", "true_graph_0", "false_graph_0", "while_loop_cond_graph_0", "while_loop_body_graph_0"}
    graph = reference.graphs[0]
    assert graph.by_name["linear_weight"].kind is NodeKind.WEIGHT
    assert graph.by_name["cond"].target == "higher_order.cond"
    line = reference.line(graph.by_name["sum_1"])
    assert line is not None
    assert (line.function, "torch.cond" in line.text) == ("forward", True)


def test_constant_folding_has_a_graph_of_its_own(saved: Runs) -> None:
    reference = reference_of(saved("fold"))
    assert {graph.function for graph in reference.graphs} == {program_graphs.MODEL, program_graphs.FOLDING}
    regions = regions_of(saved("fold"))
    assert regions.uncovered == ()
    assert {region.function for region in regions.regions} == {program_graphs.MODEL, program_graphs.FOLDING}


@pytest.mark.parametrize("name", ["control", "custom", "fold", "half", "attention", "views", "blocks", "planned"])
def test_every_launch_has_a_region(saved: Runs, name: str) -> None:
    regions = regions_of(saved(name))
    assert regions.uncovered == ()
    assert regions.regions
    run, reference = saved(name), reference_of(saved(name))
    alone = tuple(find_region(run, reference, run.launch(region.launch)) for region in regions.regions)
    assert alone == regions.regions


def test_launches_in_a_loop(saved: Runs) -> None:
    run = saved("control")
    regions = {region.launch: region for region in regions_of(run).regions}
    inside = [launch for launch in run.launches if launch.site.subgraph == "while_loop_body_graph_0"]
    first, later = inside[0], next(launch for launch in inside if launch.loops == (1,))
    for launch in (first, later):
        (known,) = regions[launch.id].inputs
        assert known.value == ValueKey("arg1_1")
        assert known.recorded.launch == launch.id
        assert regions[launch.id].nodes == ("permute", "mm")


def test_what_an_operator_does_to_its_argument(saved: Runs) -> None:
    run = saved("custom")
    written = {str(item.value) for region in regions_of(run).regions for item in region.outputs}
    assert {"total after accumulate__default_1", "arg3_1 after accumulate__default"} <= written
    reader = next(launch for launch in run.launches if launch.kernel.startswith("cpp_fused_add_2"))
    region = next(region for region in regions_of(run).regions if region.launch == reader.id)
    assert "total after accumulate__default_1" in {str(item.value) for item in region.inputs}


def test_a_buffer_without_a_node_joins_two_launches(saved: Runs) -> None:
    regions = regions_of(saved("mixed"))
    joined = [region for region in regions.regions if len(region.launches) > 1]
    assert all(region.launches[-1] == region.launch for region in joined)
    assert [note for region in regions.regions for note in region.notes] == []


def test_weights_that_are_numbers_in_the_source_of_a_kernel(saved: Runs) -> None:
    run = saved("mixed")
    graph = reference_of(run).graphs[0]
    assert len(graph.by_name["conv_bias"].value or ()) == 8
    assert graph.by_name["linear_weight"].value is None
    assert any("conv_bias" in region.nodes for region in regions_of(run).regions)
