"""python3 tests/agents/provider --port 0 --ready-file FILE --log FILE"""

import argparse
import os
import signal
import sys

from server import Server


def main():
    parser = argparse.ArgumentParser(prog="provider", description="A scripted stand-in for model providers.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--ready-file", help="is written when requests are taken, and holds the base URL")
    parser.add_argument("--log", help="gets a JSON line for each request")
    parser.add_argument("--dump", help="a directory that gets each request as it came")
    parser.add_argument("--model", action="append", default=[], help="a name for the list of models")
    options = parser.parse_args()
    server = Server(options.host, options.port, options.log, options.model, options.dump)
    if options.dump:
        os.makedirs(options.dump, exist_ok=True)
    if options.ready_file:
        # The file gets its final name only when it is complete, because tests wait for it.
        partial = f"{options.ready_file}.partial"
        with open(partial, "w", encoding="utf-8") as file:
            file.write(server.url + "\n")
        os.replace(partial, options.ready_file)
    print(server.url, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server.serve_forever()
    except (KeyboardInterrupt, SystemExit):
        pass
    finally:
        server.server_close()


if __name__ == "__main__":
    main()
