"""The audit trail."""

from kactl.admin.route import ApiRequest
from kactl.admin.schema import AuditPage, AuditQuery, NoData
from kactl.admin.service import Service


async def audit(service: Service, request: ApiRequest[NoData, AuditQuery, NoData]) -> AuditPage:
    """Returns attempts to change something, and denials."""
    records = service.trail.read(request.query.after, request.query.limit)
    return AuditPage(items=tuple(records), node_id=service.controller.node_id)
