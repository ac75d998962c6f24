"""Slurm sites as their commands print them: two written out, and a large one made here."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "slurm"
DEPARTMENT: Final = (FOLDER / "department.txt", FOLDER / "department.cfg")
"""One GPU partition for all, QOS that preempts, `sacctmgr dump`."""
CONDO: Final = (FOLDER / "condo.txt",)
"""Groups own nodes that scavengers use, `scontrol --oneliner`, `sacctmgr show associations -P`."""

_GPUS: Final = ("a100", "h100", "l40s", "v100", "")
_FACULTIES: Final = ("science", "medicine", "engineering", "arts")
PARTITIONS: Final = 20
ASSOCIATIONS: Final = 300


def university() -> str:
    """20 partitions on 100 nodes, 4 faculties with 10 groups each, 300 associations of users."""
    return "\n".join([*_partitions(), *_nodes(), *_accounts()]) + "\n"


def _group(faculty: str, number: int) -> str:
    return f"{faculty[:3]}_lab{number}"


def _partition(name: str, *, accounts: str = "ALL", tier: int = 1, mode: str = "OFF", nodes: str = "") -> str:
    return (
        f"PartitionName={name}\n"
        f"   AllowGroups=ALL AllowAccounts={accounts} AllowQos=ALL\n"
        f"   AllocNodes=ALL Default={'YES' if name == 'general-a100' else 'NO'} QoS=N/A\n"
        "   DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO\n"
        "   MaxNodes=UNLIMITED MaxTime=7-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED\n"
        f"   Nodes={nodes}\n"
        f"   PriorityJobFactor=1 PriorityTier={tier} RootOnly=NO ReqResv=NO OverSubscribe=NO\n"
        f"   OverTimeLimit=NONE PreemptMode={mode}\n"
        "   State=UP TotalCPUs=1280 TotalNodes=20 SelectTypeParameters=NONE\n"
        "   JobDefaults=(null)\n"
        "   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n"
    )


def _partitions() -> list[str]:
    """One for all per GPU type, one per faculty and some types that it owns, and two for scavengers."""
    found = [_partition(f"general-{gpu or 'cpu'}", nodes=f"{gpu or 'cn'}-[01-12]") for gpu in _GPUS]
    for faculty in _FACULTIES:
        found += [
            _partition(f"{faculty}-{gpu}", accounts=faculty, tier=50, nodes=f"{gpu}-[13-16]")
            for gpu in ("a100", "h100", "l40s")
        ]
    found.append(_partition("lab1", accounts="sci_lab1", tier=100, nodes="v100-[13-20]"))
    found += [_partition(f"scavenge-{kind}", mode="REQUEUE") for kind in ("gpu", "cpu")]
    return found


def _nodes() -> list[str]:
    found = []
    for gpu in _GPUS:
        for number in range(1, 21):
            owned = number > 12
            inside = [f"scavenge-{'gpu' if gpu else 'cpu'}"]
            if not owned or not gpu:
                inside.append(f"general-{gpu or 'cpu'}")
            elif gpu == "v100":
                inside.append("lab1")
            else:
                inside.append(f"{_FACULTIES[(number - 13) // 2]}-{gpu}")
            gres, tres = (f"gpu:{gpu}:8(S:0-1)", f",gres/gpu=8,gres/gpu:{gpu}=8") if gpu else ("(null)", "")
            found.append(
                f"NodeName={gpu or 'cn'}-{number:02} Arch=x86_64 CoresPerSocket=32\n"
                f"   Gres={gres}\n"
                "   OS=Linux 5.14.0 #1 SMP Fri May 31 11:26:31 EDT 2024\n"
                "   RealMemory=1031000 State=IDLE ThreadsPerCore=2 Weight=10 Owner=N/A MCS_label=N/A\n"
                f"   Partitions={','.join(inside)} \n"
                f"   CfgTRES=cpu=128,mem=1031000M,billing=128{tres}\n"
            )
    return found


def _accounts() -> list[str]:
    """As `sacctmgr dump` writes them, in the newer form with QOS."""
    found = [
        "QOS - 'normal':Description='Normal QOS default':Priority=0",
        "QOS - 'urgent':Priority=5000:Preempt='normal':GraceTime=60",
        "Cluster - 'uni':Fairshare=1:QOS='normal'",
        "Parent - 'root'",
        "User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1",
    ]
    found += [
        f"Account - '{name}':Description='faculty':Fairshare={share}"
        for share, name in enumerate(_FACULTIES, 100)
    ]
    groups = [(faculty, _group(faculty, number)) for faculty in _FACULTIES for number in range(10)]
    for faculty in _FACULTIES:
        found.append(f"Parent - '{faculty}'")
        limits = "GrpTRES=gres/gpu:h100=16"
        found += [f"Account - '{group}':Fairshare=10:{limits}" for of, group in groups if of == faculty]
    users = [(groups[number % len(groups)][1], f"user{number:03}") for number in range(ASSOCIATIONS)]
    for _, group in groups:
        found.append(f"Parent - '{group}'")
        found += [
            f"User - '{user}':DefaultAccount='{group}':Fairshare=1:MaxJobs=50"
            for of, user in users
            if of == group
        ]
    return found
