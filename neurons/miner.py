"""A miner of the subnet.

python neurons/miner.py --netuid 2 --wallet.name miner --wallet.hotkey default --subtensor.network local
"""

import sys

from subnet.cli.miner import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
