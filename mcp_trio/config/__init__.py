"""The settings of `mcp-trio serve`: one TOML file, read once, every fault explained.

Unknown keys are errors. Secrets never stand in the file: it names an environment
variable or a file that holds them. Each section has a module, and `settings` has the whole.
"""

from mcp_trio.config.admin import AdminSection as AdminSection
from mcp_trio.config.auth import AuthSection as AuthSection
from mcp_trio.config.auth import CertificateSection as CertificateSection
from mcp_trio.config.auth import DPoPSection as DPoPSection
from mcp_trio.config.auth import IntrospectionSection as IntrospectionSection
from mcp_trio.config.auth import JWTSection as JWTSection
from mcp_trio.config.catalog import CatalogSection as CatalogSection
from mcp_trio.config.checking import Checked as Checked
from mcp_trio.config.checking import check_settings as check_settings
from mcp_trio.config.draft import Draft as Draft
from mcp_trio.config.draft import Override as Override
from mcp_trio.config.faults import Fault as Fault
from mcp_trio.config.faults import Origin as Origin
from mcp_trio.config.faults import SettingsError as SettingsError
from mcp_trio.config.limits import LimitsSection as LimitsSection
from mcp_trio.config.load import RateSection as RateSection
from mcp_trio.config.load import RatesSection as RatesSection
from mcp_trio.config.load import ToolRateSection as ToolRateSection
from mcp_trio.config.load import ToolSection as ToolSection
from mcp_trio.config.logs import AccessLogSection as AccessLogSection
from mcp_trio.config.logs import AuditSection as AuditSection
from mcp_trio.config.logs import LoggingSection as LoggingSection
from mcp_trio.config.server import ServerSection as ServerSection
from mcp_trio.config.settings import Settings as Settings
from mcp_trio.config.settings import draft_file as draft_file
from mcp_trio.config.settings import load_settings as load_settings
from mcp_trio.config.settings import make_connections as make_connections
from mcp_trio.config.settings import overridden as overridden
from mcp_trio.config.settings import parse_settings as parse_settings
from mcp_trio.config.telemetry import TelemetrySection as TelemetrySection
from mcp_trio.config.tls import TLSSection as TLSSection
from mcp_trio.config.toolsets import ToolsetSection as ToolsetSection
