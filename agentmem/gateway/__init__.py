"""The meter: an OpenAI-compatible proxy on loopback that books every call of every scope."""

from agentmem.gateway.options import GatewayOptions, Upstream
from agentmem.gateway.server import Gateway

__all__ = ["Gateway", "GatewayOptions", "Upstream"]
