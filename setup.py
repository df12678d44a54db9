"""The package `sn38`: the subnet, its runs and the `sn38` command.

Ranges here, exact versions in requirements.lock. Settings of tools live in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import find_namespace_packages, setup

ROOT = Path(__file__).resolve().parent
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "subnet" / "__init__.py").read_text(encoding="utf-8"), re.M)[1]

setup(
    name="sn38",
    version=VERSION,
    description="Many independent computers train one language model together; a Bittensor subnet without a master",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.10,<3.14",  # hivemind forks and reads pydantic.v1: neither works on 3.14
    packages=[*find_namespace_packages(include=["subnet", "subnet.*"], exclude=["*__pycache__*"]), "subnet.runs"],
    package_dir={"subnet.runs": "runs"},  # where subnet.config looks for named runs once installed
    package_data={"subnet.runs": ["*.toml"], "subnet.localnet.explorer": ["page/*"]},
    entry_points={"console_scripts": ["sn38 = subnet.cli.__main__:main"]},
    install_requires=[
        "base58>=2.1,<3",
        "bittensor>=11.3,<12",
        "bittensor-core>=0.1.5,<0.2",
        "aiohttp>=3.9,<4",
        "async-timeout>=4; python_version < '3.11'",
        "cryptography>=42",
        "fsspec[http]>=2024.6",
        "hivemind>=1.1.12,<1.2",
        "httpx",
        "huggingface_hub>=1.31",
        "matplotlib>=3.9,<4",
        "msgpack>=1.0,<2",
        "numpy>=2,<2.4",  # hivemind 1.1.12's 8-bit codecs fail silently on 2.4
        "openskill>=6.1,<7",
        "protobuf>=5.29,<8",
        "pydantic>=2,<3",
        "rich>=13",
        "safetensors>=0.5",
        "scipy<1.18",  # hivemind calls linprog's interior-point method, which is being removed
        "tokenizers>=0.22",
        "tomli>=2; python_version < '3.11'",
        "torch>=2.9,<3",
        "transformers>=5,<6",
        "uvloop<0.24",
        "wandb>=0.19",
        "websockets>=14.1,<17",
    ],
    extras_require={
        "data": ["pyarrow>=17"],  # parquet for sn38 tokenize
        "dev": ["hypothesis>=6.100", "mypy>=1.14", "pyarrow>=17", "pytest>=8", "pyyaml>=6", "ruff>=0.9"],
    },
)
