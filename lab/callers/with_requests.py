"""with_requests.py URL new|kept: 40 requests with requests: separate ones, or in one Session."""

import sys

import requests

get = requests.Session().get if sys.argv[2] == "kept" else requests.get
for _ in range(40):
    get(sys.argv[1], timeout=30).raise_for_status()
