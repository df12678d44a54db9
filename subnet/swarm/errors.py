"""What can go wrong with the swarm as a whole; light, so that entry points can catch it before they load hivemind."""


class SwarmError(Exception):
    """The DHT process is gone or does not answer; the message says which."""
