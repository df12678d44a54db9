"""A validator of the subnet.

python neurons/validator.py --netuid 2 --wallet.name validator --wallet.hotkey default --subtensor.network local
"""

import sys

from subnet.cli.validator import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
