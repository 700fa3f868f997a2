"""The main job on one machine: a log server, two replicas, a balancer that can lose answers.

Door. Nothing here is needed in production.
"""
