"""`python -m htagraph`: the command line, of the Python that runs it."""

from htagraph.cli.start import start

if __name__ == "__main__":
    start()
