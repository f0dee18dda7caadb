# Turn openapi.json into the text that route_docs.c serves.
BEGIN {
    print "/* Made from openapi.json by embed.awk. */"
    print "#include \"wire_private.h\"\n"
    print "const char wire_openapi_json[] ="
}
{
    gsub(/\\/, "&&")
    gsub(/"/, "\\\"")
    print "    \"" $0 "\\n\""
}
END {
    print "    ;"
}
