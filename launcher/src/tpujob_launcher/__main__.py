"""`python -m tpujob_launcher`; in images and JobSets `python -m tpujob_contract.launch`."""

import sys

from tpujob_launcher.main import main

sys.exit(main())
