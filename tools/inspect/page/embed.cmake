# Writes OUT, a C file with the bytes of viewer.js and viewer.css in FOLDER.
set(text "#include \"tools/inspect/page/viewer.h\"\n")
foreach(kind js css)
  file(READ "${FOLDER}/viewer.${kind}" bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND text "const unsigned char viewer_${kind}[] = {\n${bytes}};\n"
                     "const size_t viewer_${kind}_bytes = sizeof viewer_${kind};\n")
endforeach()
file(WRITE "${OUT}" "${text}")
