"""Small tables of facts for simulated questions: subject | answer | difficulty 0-4 | common misconception.

Difficulty is how rarely such a thing is asked about, on a rough scale. A misconception is an answer that many
people, and models trained on what people write, believe.
"""

CAPITALS = """
Argentina|Buenos Aires|1|
Australia|Canberra|2|Sydney
Bahrain|Manama|3|
Belize|Belmopan|4|Belize City
Bhutan|Thimphu|3|
Botswana|Gaborone|3|
Brazil|Brasília|2|Rio de Janeiro
Burkina Faso|Ouagadougou|3|
Cambodia|Phnom Penh|2|
Canada|Ottawa|1|Toronto
Chad|N'Djamena|4|
Chile|Santiago|1|
Colombia|Bogotá|1|
Cuba|Havana|0|
Ecuador|Quito|2|Guayaquil
Egypt|Cairo|0|
Estonia|Tallinn|2|
Finland|Helsinki|0|
France|Paris|0|
Germany|Berlin|0|
Ghana|Accra|2|
Greece|Athens|0|
Hungary|Budapest|1|
Iran|Tehran|1|
Iraq|Baghdad|1|
Ireland|Dublin|0|
Italy|Rome|0|
Japan|Tokyo|0|
Kazakhstan|Astana|3|Almaty
Kenya|Nairobi|1|
Kyrgyzstan|Bishkek|4|
Laos|Vientiane|3|
Latvia|Riga|2|
Lithuania|Vilnius|2|
Madagascar|Antananarivo|3|
Mali|Bamako|3|
Malta|Valletta|2|
Moldova|Chișinău|4|
Mongolia|Ulaanbaatar|2|
Morocco|Rabat|2|Casablanca
Myanmar|Naypyidaw|3|Yangon
Namibia|Windhoek|3|
Nepal|Kathmandu|1|
New Zealand|Wellington|1|Auckland
Nigeria|Abuja|2|Lagos
North Macedonia|Skopje|3|
Norway|Oslo|0|
Oman|Muscat|3|
Pakistan|Islamabad|2|Karachi
Palau|Ngerulmud|4|Koror
Paraguay|Asunción|3|
Peru|Lima|1|
Poland|Warsaw|0|
Portugal|Lisbon|0|
Rwanda|Kigali|2|
Senegal|Dakar|2|
Slovakia|Bratislava|2|
Slovenia|Ljubljana|3|
Spain|Madrid|0|
Suriname|Paramaribo|4|
Switzerland|Bern|2|Zurich
Tajikistan|Dushanbe|4|
Tanzania|Dodoma|4|Dar es Salaam
Thailand|Bangkok|1|
Turkey|Ankara|1|Istanbul
Turkmenistan|Ashgabat|4|
Uganda|Kampala|2|
Uruguay|Montevideo|2|
Vietnam|Hanoi|2|Ho Chi Minh City
Zambia|Lusaka|3|
"""

SYMBOLS = """
antimony|Sb|3|An
arsenic|As|2|Ar
barium|Ba|1|
bismuth|Bi|2|
bromine|Br|1|
cadmium|Cd|2|
calcium|Ca|0|
chlorine|Cl|0|
chromium|Cr|1|
cobalt|Co|1|
copper|Cu|0|
dysprosium|Dy|4|
gold|Au|0|
hafnium|Hf|3|
helium|He|0|
iodine|I|1|
iron|Fe|0|
lead|Pb|1|
magnesium|Mg|1|Mn
manganese|Mn|2|Mg
mercury|Hg|1|
neon|Ne|0|
nickel|Ni|1|
palladium|Pd|2|
platinum|Pt|1|
potassium|K|1|
praseodymium|Pr|4|
protactinium|Pa|4|Pr
radium|Ra|2|
radon|Rn|2|Ra
rhodium|Rh|3|
ruthenium|Ru|3|
silver|Ag|1|
sodium|Na|0|
strontium|Sr|2|St
terbium|Tb|4|Te
thorium|Th|3|
thulium|Tm|4|Th
tin|Sn|2|Ti
titanium|Ti|1|
tungsten|W|2|Tu
uranium|U|0|
zinc|Zn|0|
"""

AUTHORS = """
A Doll's House|Henrik Ibsen|1|
Bel Ami|Guy de Maupassant|3|
Blindness|José Saramago|2|
Brave New World|Aldous Huxley|1|George Orwell
Buddenbrooks|Thomas Mann|3|
Candide|Voltaire|1|
Crime and Punishment|Fyodor Dostoevsky|0|
Dead Souls|Nikolai Gogol|2|Fyodor Dostoevsky
Don Quixote|Miguel de Cervantes|0|
Dracula|Bram Stoker|0|
Fathers and Sons|Ivan Turgenev|3|Leo Tolstoy
Frankenstein|Mary Shelley|0|
Germinal|Émile Zola|2|Victor Hugo
Hopscotch|Julio Cortázar|3|Jorge Luis Borges
Jane Eyre|Charlotte Brontë|1|Emily Brontë
Kokoro|Natsume Sōseki|4|Haruki Murakami
Middlemarch|George Eliot|2|
Midnight's Children|Salman Rushdie|1|
Miss Julie|August Strindberg|3|Henrik Ibsen
Moby-Dick|Herman Melville|0|
Nausea|Jean-Paul Sartre|2|Albert Camus
One Hundred Years of Solitude|Gabriel García Márquez|0|
Pedro Páramo|Juan Rulfo|3|Gabriel García Márquez
Snow Country|Yasunari Kawabata|4|Haruki Murakami
Steppenwolf|Hermann Hesse|2|
The Betrothed|Alessandro Manzoni|4|
The Book of Disquiet|Fernando Pessoa|3|José Saramago
The God of Small Things|Arundhati Roy|2|
The Good Soldier Švejk|Jaroslav Hašek|3|Milan Kundera
The Leopard|Giuseppe Tomasi di Lampedusa|4|Italo Calvino
The Magic Mountain|Thomas Mann|2|Hermann Hesse
The Master and Margarita|Mikhail Bulgakov|2|
The Name of the Rose|Umberto Eco|1|
The Plague|Albert Camus|1|
The Red and the Black|Stendhal|2|
The Second Sex|Simone de Beauvoir|1|
The Time Machine|H. G. Wells|1|Jules Verne
The Tin Drum|Günter Grass|2|
The Trial|Franz Kafka|1|
Things Fall Apart|Chinua Achebe|1|
Waiting for Godot|Samuel Beckett|1|
War and Peace|Leo Tolstoy|0|
Wuthering Heights|Emily Brontë|1|Charlotte Brontë
"""

DATES = """
the Battle of Hastings|1066|0|
the Battle of Lepanto|1571|3|
the Battle of Manzikert|1071|4|
the Battle of Waterloo|1815|1|
the Chernobyl accident|1986|1|
the Defenestration of Prague that began the Thirty Years' War|1618|3|
the Edict of Nantes|1598|3|1685
the Great Fire of London|1666|1|
the Great Lisbon Earthquake|1755|3|
the Krakatoa eruption|1883|2|
the Meiji Restoration|1868|2|
the Peace of Westphalia|1648|2|
the Treaty of Tordesillas|1494|3|
the birth of Dolly the sheep|1996|3|1997
the coronation of Charlemagne as emperor|800|2|
the discovery of penicillin|1928|2|
the end of the Second World War|1945|0|
the fall of Constantinople|1453|1|
the fall of the Berlin Wall|1989|0|
the first Eurovision Song Contest|1956|3|
the first Moon landing with a crew|1969|0|
the first human heart transplant|1967|3|
the first powered flight of the Wright brothers|1903|1|
the first transatlantic telegraph message|1858|4|1866
the first voyage of Columbus to America|1492|0|
the founding of the Dutch East India Company|1602|3|
the founding of the United Nations|1945|1|
the launch of Sputnik 1|1957|1|
the launch of the Hubble telescope|1990|2|
the opening of the Congress of Vienna|1814|3|1815
the opening of the Panama Canal|1914|2|
the opening of the Suez Canal|1869|2|
the sealing of Magna Carta|1215|1|
the signing of the Treaty of Utrecht|1713|4|
the sinking of the Titanic|1912|0|
the start of the First World War|1914|0|
the storming of the Bastille|1789|0|
the United States Declaration of Independence|1776|0|
"""

CURRENCIES = """
Albania|lek|3|
Armenia|dram|3|
Bangladesh|taka|2|rupee
Bhutan|ngultrum|4|rupee
Botswana|pula|4|
Brazil|real|1|
Costa Rica|colón|2|
Czechia|koruna|1|euro
Denmark|krone|1|euro
Ethiopia|birr|3|
Georgia (the country)|lari|3|
Ghana|cedi|3|
Guatemala|quetzal|3|
Honduras|lempira|4|
Hungary|forint|1|
Iceland|króna|2|euro
India|rupee|0|
Indonesia|rupiah|1|
Israel|shekel|1|
Japan|yen|0|
Laos|kip|3|
Malaysia|ringgit|2|
Mongolia|tögrög|3|
Morocco|dirham|2|
Myanmar|kyat|3|
Nigeria|naira|2|
Norway|krone|1|euro
Paraguay|guaraní|3|
Peru|sol|2|peso
Poland|złoty|1|
South Korea|won|0|
Sweden|krona|1|euro
Switzerland|franc|0|euro
Thailand|baht|1|
Turkey|lira|1|
Ukraine|hryvnia|1|ruble
United Kingdom|pound sterling|0|
Vietnam|đồng|2|
Zambia|kwacha|4|
"""

QUIZ = """
What is the hottest planet of the solar system?|Venus|1|Mercury|Mars, Jupiter
What is the largest planet of the solar system?|Jupiter|0||Saturn, Neptune
Which planet takes the least time to go round the Sun?|Mercury|0||Venus, Mars
Which planet lies on its side as it orbits?|Uranus|1||Neptune, Saturn
Which planet of the solar system is farthest from the Sun?|Neptune|1|Pluto|Uranus, Saturn
On which planet does a day last longer than a year?|Venus|2|Mercury|Jupiter, Uranus
Which planet is closest to Earth on average over time?|Mercury|4|Venus|Mars, Jupiter
What is the largest moon of the solar system?|Ganymede|2|Titan|Callisto, Europa
Which star is nearest to the Sun?|Proxima Centauri|1|Sirius|Barnard's Star, Vega
On which planet is Olympus Mons?|Mars|1||Venus, Mercury
Which gas makes up most of Earth's atmosphere?|nitrogen|0|oxygen|argon, carbon dioxide
Which organ makes insulin?|the pancreas|0|the liver|the kidneys, the spleen
What is the largest organ of the human body?|the skin|1|the liver|the lungs, the brain
What is the longest bone of the human body?|the femur|0||the tibia, the humerus
What is the smallest bone of the human body?|the stapes|2||the incus, the malleus
How many bones does an adult human have?|206|1||208, 201, 212
How many hearts does an octopus have?|three|2||two, one, eight
What is the largest desert on Earth?|the Antarctic desert|2|the Sahara|the Gobi, the Arabian desert
Which country has the most time zones, overseas parts included?|France|3|Russia|the United States, China
What is the deepest lake on Earth?|Lake Baikal|1||Lake Tanganyika, Lake Superior
What is the highest waterfall on Earth?|Angel Falls|1|Victoria Falls|Niagara Falls, Iguazu Falls
Which country has the most natural lakes?|Canada|2|Finland|Russia, Sweden
What is the northernmost capital of a sovereign state?|Reykjavík|1|Oslo|Helsinki, Stockholm
What is the largest country of Africa by area?|Algeria|2|Sudan|Libya, Chad
What is the most populous country of Africa?|Nigeria|1||Egypt, Ethiopia
What is the largest island on Earth?|Greenland|1|Australia|New Guinea, Borneo
What is the second highest mountain on Earth?|K2|1||Kangchenjunga, Lhotse
What is the highest mountain of Africa?|Kilimanjaro|0||Mount Kenya, Ras Dashen
What is the largest lake on Earth by area?|the Caspian Sea|2|Lake Superior|Lake Victoria, Lake Baikal
What is the smallest country on Earth?|Vatican City|0||Monaco, San Marino
Which sea has no coast?|the Sargasso Sea|2||the Coral Sea, the Dead Sea
What colour is an aircraft's flight recorder?|orange|2|black|red, yellow
In which country was the Caesar salad first made?|Mexico|3|Italy|the United States, France
From which country do Panama hats come?|Ecuador|2|Panama|Colombia, Costa Rica
How many years did the Hundred Years' War last?|116|2|100|99, 113
In which month of the Gregorian calendar did the October Revolution begin?|November|2|October|September, December
After which animal are the Canary Islands named?|the dog|3|the canary|the seal, the goat
What was the first name of King George VI of the United Kingdom?|Albert|4|George|Edward, Henry
What is the hair of a camel-hair brush usually from?|squirrels|4|camels|goats, horses
What is the national animal of Scotland?|the unicorn|2|the red deer|the lion, the golden eagle
Which city was once called Constantinople?|Istanbul|0||Athens, Ankara
What is the chemical name of table salt?|sodium chloride|0||potassium chloride, sodium bicarbonate
Which metal is liquid at room temperature?|mercury|0||lead, tin
Which vitamin does the skin make in sunlight?|vitamin D|0||vitamin C, vitamin B12
How many squares does a chessboard have, counting single fields only?|64|0||100, 81, 72
Who painted The Night Watch?|Rembrandt|1|Johannes Vermeer|Frans Hals, Peter Paul Rubens
Who painted Guernica?|Pablo Picasso|0||Salvador Dalí, Joan Miró
Who painted The Garden of Earthly Delights?|Hieronymus Bosch|2||Pieter Bruegel the Elder, Albrecht Dürer
Who painted Girl with a Pearl Earring?|Johannes Vermeer|0||Rembrandt, Frans Hals
Who painted Las Meninas?|Diego Velázquez|1|Francisco Goya|El Greco, Bartolomé Murillo
Who composed The Four Seasons, four violin concertos?|Antonio Vivaldi|0||Johann Sebastian Bach, Arcangelo Corelli
Who composed The Planets?|Gustav Holst|1|Edward Elgar|Benjamin Britten, William Walton
Who composed the music of Peer Gynt?|Edvard Grieg|1|Jean Sibelius|Carl Nielsen, Antonín Dvořák
Who composed Boléro?|Maurice Ravel|1|Claude Debussy|Erik Satie, Georges Bizet
Who composed The Firebird?|Igor Stravinsky|1||Sergei Prokofiev, Pyotr Tchaikovsky
Who composed Finlandia?|Jean Sibelius|1||Edvard Grieg, Carl Nielsen
"""
