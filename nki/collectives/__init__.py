"""`nki.collectives`: communication between the ranks of a distributed kernel."""

from nki.collectives.group import ReplicaGroup

__all__ = ["ReplicaGroup"]
