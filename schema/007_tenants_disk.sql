-- What a tenant's workspaces are together, without reading everybody else's: there may be as many tenants as workspaces.

CREATE INDEX workspace_of_tenant ON workspace (tenant, size_bytes, file_count);
