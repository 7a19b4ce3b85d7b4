# Writes OUT, a C file that includes HEADER and holds the bytes of every NAME=PATH in FILES as
# `const unsigned char NAME[]` and `const size_t NAME_bytes`; NAME:u32=PATH as `const uint32_t NAME[]`,
# from little-endian numbers.
set(text "#include \"${HEADER}\"\n")
foreach(file IN LISTS FILES)
  string(REGEX MATCH "^([a-z_]+)(:u32)?=(.*)$" matched "${file}")
  set(name "${CMAKE_MATCH_1}")
  set(numbers "${CMAKE_MATCH_2}")
  file(READ "${CMAKE_MATCH_3}" bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  if(numbers)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])([0-9a-f][0-9a-f])([0-9a-f][0-9a-f])([0-9a-f][0-9a-f])"
           "0x\\4\\3\\2\\1," bytes "${bytes}")
    string(APPEND text "const uint32_t ${name}[] = {\n${bytes}};\n")
  else()
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND text "const unsigned char ${name}[] = {\n${bytes}};\n")
  endif()
  string(APPEND text "const size_t ${name}_bytes = sizeof ${name};\n")
endforeach()
file(WRITE "${OUT}" "${text}")
