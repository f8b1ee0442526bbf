"""Principals, and the decision whether one may carry out an operation on a resource.

Decisions are pure: they know neither a connection nor a store. Everything that is not allowed is denied.
"""

from .acls import Acl, Acls
from .authorizer import AclAuthorizer, Authorizer, BrokerPrincipals
from .der import MalformedCertificate
from .distinguished_name import subject_of
from .principal import ANONYMOUS, Principal, kafka_subject, kafka_user, stranger
from .principal_rules import PrincipalRules
from .resource import CLUSTER, Operation, Resource, ResourceType, topic
from .validity import expiry_of

__all__ = [
    "ANONYMOUS",
    "CLUSTER",
    "Acl",
    "AclAuthorizer",
    "Acls",
    "Authorizer",
    "BrokerPrincipals",
    "MalformedCertificate",
    "Operation",
    "Principal",
    "PrincipalRules",
    "Resource",
    "ResourceType",
    "expiry_of",
    "kafka_subject",
    "kafka_user",
    "stranger",
    "subject_of",
    "topic",
]
