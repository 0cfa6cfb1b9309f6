"""The command line that the Python clients share."""

import argparse
import urllib.parse


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--resolve", required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--version", choices=("1.2", "1.3"), required=True)
    parser.add_argument("--requests", type=int, required=True)
    args = parser.parse_args()
    args.port = urllib.parse.urlsplit(args.url).port
    return args
