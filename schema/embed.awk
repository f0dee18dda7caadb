# Turn schema/NNN_*.sql, given in order, into the table of migrations that src/store/store_db.c applies.
BEGIN {
    print "/* Made from schema/NNN_name.sql by schema/embed.awk. */"
    print "#include \"store_private.h\"\n"
    print "const struct store_migration store_migrations[] = {"
}
FNR == 1 {
    if (number)
        print "    },"
    name = FILENAME
    sub(/.*\//, "", name)
    while (++number < name + 0) # a number that was left out
        print "    {" number ", \"\"},"
    if (name + 0 != number) {
        print FILENAME ": expected migration " number > "/dev/stderr"
        bad = 1
        exit 1
    }
    print "    {" number ","
}
/\\/ {
    print FILENAME ": no backslash, please" > "/dev/stderr"
    bad = 1
    exit 1
}
{
    gsub(/"/, "\\\"")
    print "     \"" $0 "\\n\""
}
END {
    if (bad || !number)
        exit 1
    print "    },\n};\n"
    print "const int store_schema_newest = " number ";"
}
