"""The driver's side of e2e/protocol: one JSON request a line in, one answer a line out."""

import base64
import json
import sys


class Unsupported(Exception):
    """The client library has no such operation."""


def b64(data):
    return None if data is None else base64.b64encode(data).decode()


def unb64(text):
    return None if text is None else base64.b64decode(text)


def serve(handle):
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = handle(request)
        except Unsupported as e:
            answer = {"unsupported": str(e)}
        except Exception as e:  # the suite reports it with the request that caused it
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), flush=True)
