"""Classes of device work, and the rule that decided."""

from __future__ import annotations

import pytest

from htagraph.compiler.classes import ClassRule
from htagraph.compiler.passes import compile_events
from htagraph.model.kinds import KernelClass
from htagraph.synth import timeline

_DRAWING = """
    cpu 1    |[launch >a]
    stream 7 |     [K <a ]
"""


def _classified(
    name: str, rules: tuple[ClassRule, ...] = (), **columns: int
) -> tuple[KernelClass, str]:
    events = timeline(
        _DRAWING, names={"K": name}, columns={key: {"K": value} for key, value in columns.items()}
    )
    found = compile_events(events, class_rules=rules).classification
    return KernelClass(int(found.kernel_class[1])), found.rules[found.rule[1]]


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)",
        "void dpsk::ep::internode::notify_dispatch<8>(int const*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16>(void**)",
        "void nvshmemi_transfer_rma<0>(int)",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>(int)",
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<2>>(int)",
        "void flashinfer::allreduce_fusion_kernel_oneshot_lamport<__half, 4>(int)",
        "mori::moe::EpDispatchIntraNodeKernel<float>(int)",
    ],
)
def test_known_communication_kernels_are_communication(name):
    """Whatever library sends: NCCL old and new, RCCL, DeepEP, NVSHMEM, custom all-reduce."""
    assert _classified(name)[0] == KernelClass.COMMUNICATION


@pytest.mark.parametrize(
    "name",
    [
        "ampere_sgemm_128x64_nn",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)",
        "void hipcub::reduce(int)",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)",
    ],
)
def test_everything_else_computes(name):
    """A reduction or a copy kernel of a framework is computation; hip in a name says nothing."""
    assert _classified(name) == (KernelClass.COMPUTE, "everything else computes")


def test_metadata_of_a_collective_decides_over_names():
    """The profiler says which kernels are collectives in newer files."""
    assert _classified("my_kernel", collective=0) == (
        KernelClass.COMMUNICATION,
        "collective metadata",
    )


def test_a_rule_of_the_user_comes_first():
    """Who writes own communication kernels says so once."""
    rule = ClassRule("our ring", KernelClass.COMMUNICATION, "^ring_")

    assert _classified("ring_step", (rule,)) == (KernelClass.COMMUNICATION, "our ring")


@pytest.mark.parametrize(
    "rules", [(), (ClassRule("our ring", KernelClass.COMMUNICATION, "^ring_"),)]
)
def test_the_first_built_in_rule_comes_after_those_of_the_user(rules):
    """It is the one of the largest libraries, with a name of its own."""
    assert _classified("ncclKernel_X", rules)[1] == "nccl or rccl kernel"


def test_a_rule_of_the_user_can_overrule_ours():
    """Even a kernel that carries the metadata of a collective."""
    rule = ClassRule("not really", KernelClass.COMPUTE, "^nccl")

    assert _classified("ncclKernel_X", (rule,), collective=0) == (KernelClass.COMPUTE, "not really")


def test_copies_are_memory():
    """Events of the copy engines are memory by their kind."""
    assert _classified("Memcpy DtoD (Device -> Device)") == (
        KernelClass.MEMORY,
        "copy or fill event",
    )
